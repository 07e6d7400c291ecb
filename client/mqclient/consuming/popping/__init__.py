"""Reading by POP: messages for a time, instead of queues.

``consumer``  the face
``message``   a message that was popped (pure)
``taking``    pops ahead of who asks
``settling``  acknowledges, many messages in a request; and asks for other times
``running``   hands messages to a handler, and keeps them hidden while it works
``window``    how far ahead, and when again (pure)
"""
