"""Raft for one group, on PySyncObj's election and commit rules.

Layout
------
``engine``       one node, without waiting: messages, appends and `now` in; messages and effects out
``messages``     what peers say: length-prefixed msgpack, and raw runs of the log (pure)
``peer``         what a node knows of each of its peers
``peers``        the links to the peers, and what goes over them
``acknowledging``  what this node acknowledges, and counts of others' acknowledgements
``parts``        what the engine's parts share
``appends``      a leader's appends that wait for their answer (pure)
``links``        the sockets between the nodes, under trio
``dialling``     how one peer is reached: names, addresses, one attempt
``handshake``    the handshake on a connection: ids and proofs
``frame_tags``   the tags of frames after the handshake
``roles``        a node's role, and election timeouts (pure)
``limits``       bounds, waits and paces of all these (pure)
``claims``       which terms and leaders a node believes of a peer (pure)
``election``     elections, and handing leadership over
``replication``  what a leader sends, what is read, and what is applied
``membership``   the members of the group
``library``      PySyncObj itself: no other folder uses a name of it

PySyncObj 0.3.17 has the vote rule, the election restriction and the commit rule right. Its other
faults are mended from outside; `docs/explanation/raft-holes.md` lists each of these holes, with its
test.
"""
