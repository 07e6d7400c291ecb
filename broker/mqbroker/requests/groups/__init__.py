"""Requests of and about the clients of groups.

``clients``     heartbeats, members, queue locks
``membership``  who is connected, by group (pure)
``readers``     who reads a queue, and whose commits count (pure)
``assignment``  which queues are a consumer's
``progress``    how far groups are
``resets``      where they are to go on
``relays``      what only a client can answer, passed on to it
"""
