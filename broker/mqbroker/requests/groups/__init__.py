"""Requests of and about the clients of groups.

``clients``     heartbeats, members, queue locks
``membership``  the connected clients, by group (pure)
``readers``     which member reads a queue, and whose commits count (pure)
``counting``    where a pull goes on, and which commits count
``earlier``     which clients hold positions of a topic's earlier life (pure)
``fencing``     which clients lost the lock of a queue, and may not commit any more
``assignment``  assigns queues to consumers
``lag``         how far groups are behind in queues, and why
``progress``    the progress of groups
``resets``      sets the offsets of a group back or forward
``relays``      questions that are passed on to a client
"""
