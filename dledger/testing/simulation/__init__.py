"""Whole groups in one thread, on virtual time, under a seed.

    python -m dledger.testing.simulation --seeds 0-2000

``command``    runs seeds, shrinks one that fails, searches for those that catch a planted bug
``group``      nodes that come and go, and time
``node``       one of them, stepped as the ledger's loops would
``repairing``  nodes that wait until their logs are repaired
``network``    links that delay, stall and break
``streams``    chance, a stream of its own for each kind of fault
``clients``    what clients and operators ask of the group
``weather``    what goes wrong, and how it ends
``judge``      whether Raft's promises were kept
"""
