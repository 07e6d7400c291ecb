"""Consuming, processing and producing in one step: outputs and consumed offsets in one entry.

``transaction``  the face
``outputs``      what is to be written, by topic and queue (pure)
"""
