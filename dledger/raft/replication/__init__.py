"""How entries get from the leader to the others, and who may read what.

``sending``     what a leader sends of its log, and how much at a time
``pacing``      how much may be under way to a peer (pure)
``reads``       read index: reads that miss nothing that was acknowledged before
``footing``     whether a log can be made sense of: the state before its first entry
``state_copy``  the state machine's state, in parts, for a node that can't replay it (pure)
``repair``      good bytes for a node whose log is damaged, before it takes part
"""
