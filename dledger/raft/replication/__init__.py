"""How entries get from the leader to the others and to the state machine, and what may be read.

``sending``     what a leader sends of its log, and how much at a time
``flow_control``  how much may be under way to a peer (pure)
``applying``    committed entries for the state machine, which also hears who leads
``state_machine``  what the log's entries mean, as Raft knows it
``reads``       read index: reads that miss nothing that was acknowledged before
``base_state``     whether a node has the state before its log's first entry
``state_copy``  the state machine's state, in parts, for a node that can't replay it (pure)
``state_transfer``  gives and takes that state, a slice in each step
``majority_space``  whether the disks of a majority have room for what a leader takes
``repair``      good bytes for a node whose log is damaged, before it takes part
"""
