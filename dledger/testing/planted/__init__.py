"""Bugs that replicated logs have had, to be put back in.

``catalogue``  all of them, each with a seed that catches it
``raft``       elections, acknowledgements, commits
``due``        when a step is due
``storage``    files and their durability
``joining``    nodes that begin, or begin again
``members``    changes of who belongs to the group
``proof``      who may connect, and what passes between two that have proven
``reads``      reads that are linearizable no more
``repair``     what was rotten, and how it is made whole
"""
