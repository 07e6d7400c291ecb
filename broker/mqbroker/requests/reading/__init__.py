"""Requests that read messages, or ask where they are.

``pull``           reads a queue
``queue_reading``  what a pull finds there (pure)
``filters``        what a consumer wants of it (pure)
``held_pulls``     pulls that wait for what is not there yet (pure)
``lookups``        questions about queues and single messages
``earliest``       when the oldest message was stored
``queries``        messages by key
"""
