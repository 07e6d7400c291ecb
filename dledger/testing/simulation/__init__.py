"""Whole groups in one thread, on virtual time, under a seed.

    python -m dledger.testing.simulation --seeds 0-2000

``command``         runs seeds, shrinks one that fails, searches for those that catch a planted bug
``group``           nodes that come and go, and time
``node``            one of them, stepped as the ledger's loops would
``network``         links that delay, stall and break
``streams``         chance, a stream of its own for each kind of fault
``clients``         what clients and operators ask of the group
``regrouping``      members that come and go
``weather``         which faults a run has, and how often
``faults``          the weather's odds turned into events
``damage``          disks that rot, and how many of them the group can bear
``repairing``       nodes that wait until their logs are repaired
``healing``         the end of a run, when all must become whole
``judge``           Raft's invariants, looked at after every step
``configurations``  the members as of each entry, for the judge
``client_history``  what clients were told, and whether it is true
"""
