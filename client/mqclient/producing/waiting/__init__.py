"""Messages that wait at the broker: for their time, or for the end of a transaction.

``delays``        what a delay asks of the broker (pure)
``recall``        takes a delayed message back
``transactions``  messages that are delivered only if some work was done
"""
