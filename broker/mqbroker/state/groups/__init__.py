"""The state that is kept for groups of consumers.

``subscriptions``  their configs (pure)
``offsets``        how far each has consumed each queue (pure)
``places``         where each is in each queue, and what it may commit (pure)
``locks``          queues that one client holds (pure)
``bits``           messages of a queue as bits (pure)
``popped``         what POP has handed out, and not got back (pure)
``deliveries``     messages that POP has handed out together (pure)
``popping``        the entries of POP, and what they do (pure)
``given_up``       popped messages that become dead letters, and are acknowledged by it (pure)
``modes``          how members read a topic: by pulls or by POP (pure)
"""
