"""Reading queues by ranges of offsets, as a table is read: for no group, and with no position kept.

``reader``   asks for the queues of topics, and for what lies in a range
``pieces``   what one answer says of a range: messages, and what is missing (pure)
"""
