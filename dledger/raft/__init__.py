"""Raft for one group, on PySyncObj's election and commit rules.

General layout
--------------
``library``    the only module that imports PySyncObj: the names of it that are used, and why
``sending``    what a leader sends of its log, and how much at a time
``journal``    gives PySyncObj our segmented log for its own
``claims``     which terms, and which leader of one, a peer is believed (pure)
``greeting``   who is at the other end of a connection, and the proofs; ``sealing`` its frames' tags
``messages``   what peers say to each other: length-prefixed msgpack, and raw runs of the log
``transport``  stands between PySyncObj and the links: drops what Raft must not act on
``election``   pre-vote and leader stickiness (pure)
``elections``  what they let the library do, and what others are told
``transfer``   handing leadership over, and back to the preferred node (pure)
``handover``   when a leader does so, and whom it tells
``reads``      read index: reads that miss nothing that was acknowledged before
``configuration`` who belongs to a group, and how that may change (pure)
``members``    the configurations in this node's log, kept over restarts
``changes``    a leader adds and removes members, one at a time
``repair``     good bytes for a node whose log is damaged, before it takes part
``peer``       what a node knows of each of its peers
``pacing``     how much may be under way to a peer (pure)
``seat``       who may vote and is counted (pure)
``footing``    whether a log can be made sense of: the state before its first entry
``state_copy`` the state machine's state, in parts, for a node that can't replay it (pure)
``joining``    how a node comes into its group: new, emptied, or after too long
``engine``     one node, without I/O: messages, appends and `now` in; messages and effects out
``links``      the sockets between the nodes, under trio

PySyncObj 0.3.17 has the vote rule, the election restriction and the commit rule right. What else
it gets wrong is closed from outside, hole by hole; `docs/raft-holes.md` lists them, with the test
of each.
"""
