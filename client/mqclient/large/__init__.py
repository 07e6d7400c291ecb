"""Messages whose bodies are too large for one record.

``manifest``  how such a message names its parts (pure)
``sending``   stores the parts, then the message
``fetching``  gets a message its body

The parts are messages of a topic of their own, `%PARTS%` and the topic's name, which nobody
subscribes to. The message itself is stored last, without a body, and names their places. So what
was sent in part only is never seen; nothing must be kept in mind about what has arrived; and
order, retries, filters and offsets are those of any message.
"""
