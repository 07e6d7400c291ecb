"""A replicated log, ready to use: one node of it, with its sockets, files and clock.

A room above `dledger.log` and `dledger.raft`.

``ledger``    :func:`open_ledger`, and what it opens
``config``    what a node is told, and what it says of itself
``opening``   gets its log into order, from its peers if it must
``stepping``  steps the engine of Raft when something is due
``upkeep``    what the files need beside appends
``outcome``   waits for one call of a callback
"""
