"""Requests of and about the clients of groups.

``clients``     heartbeats, members, queue locks
``membership``  the connected clients, by group (pure)
``readers``     which member reads a queue, and whose commits count (pure)
``assignment``  assigns queues to consumers
``progress``    the progress of groups
``resets``      sets the offsets of a group back or forward
``relays``      questions that are passed on to a client
"""
