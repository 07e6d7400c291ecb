"""Whole groups in one thread, on virtual time, under a seed.

    python -m dledger.testing.simulation --seeds 0-2000

``command``    runs seeds, shrinks one that fails, searches for those that catch a planted bug
``group``      nodes that come and go, and time
``node``       one node, stepped as the ledger's loops would
``repairing``  nodes that wait until their logs are repaired
``network``    links that delay, stall and break
``streams``    random numbers, a separate stream for each kind of fault
``clients``    the requests of clients and operators
``odds``       which faults a run has, and how often
``nemesis``    the faults, and how they end
``judge``      checks that Raft's promises are kept
"""
