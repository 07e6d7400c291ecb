"""Raft for one group, on PySyncObj's election and commit rules.

Layout
------
``engine``       one node, without waiting: messages, appends and `now` in; a `Ready` out
``ready``        the decisions of a step: entries, messages, what to apply (pure)
``turn``         a step, carried out in the order of its durability
``messages``     what peers say: length-prefixed msgpack, and raw runs of the log (pure)
``peer``         what a node knows of each of its peers
``peers``        the links to the peers, and what goes over them
``acknowledging``  what this node acknowledges, and counts of others' acknowledgements
``parts``        what the engine's parts share
``appends``      a leader's appends that wait for their answer (pure)
``roles``        a node's role, and election timeouts (pure)
``limits``       bounds, waits and paces of all these (pure)
``claims``       which terms and leaders a node believes of a peer (pure)
``network``      the connections between the nodes
``election``     elections, and handing leadership over
``replication``  what a leader sends, what is read, and what is applied
``membership``   the members of the group
``library``      PySyncObj itself: no other folder uses a name of it

PySyncObj 0.3.17 has the vote rule, the election restriction and the commit rule right. Its other
faults are mended from outside; `docs/explanation/raft-holes.md` lists each of these holes, with its
test.
"""
