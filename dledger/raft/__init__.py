"""Raft for one group, on PySyncObj's election and commit rules.

Layout
------
``engine``       one node, without I/O: messages, appends and `now` in; messages and effects out
``links``        the sockets between the nodes, under trio
``greeting``     who is at the other end of a connection, and the proofs
``sealing``      the tags of the frames between two that have proven
``roles``        what a node is, and after which times that may change (pure)
``limits``       bounds, waits and paces of all these (pure)
``claims``       which terms, and which leader of one, a peer is believed (pure)
``election``     who leads, and how leadership is handed over
``replication``  what a leader sends, and who may read what
``membership``   who belongs to the group
``library``      PySyncObj itself: the only folder that knows a name of it

PySyncObj 0.3.17 has the vote rule, the election restriction and the commit rule right. Its other
faults are mended from outside; `docs/raft-holes.md` lists each of these holes, with its test.
"""
