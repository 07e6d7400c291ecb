"""Whether a simulated run kept Raft's promises.

``invariants``      looked at after every step
``configurations``  the members as of each entry
``client_history``  what clients were told, and whether it is true
"""
