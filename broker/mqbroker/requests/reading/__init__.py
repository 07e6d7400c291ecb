"""Requests that read messages, or ask for their places.

``pull``           reads a queue
``queue_reading``  what a pull finds in a queue (pure)
``lookups``        questions about queues and single messages
``earliest``       when the oldest message was stored
``queries``        messages by key
``scheduled``      delayed messages that arrive next
"""
