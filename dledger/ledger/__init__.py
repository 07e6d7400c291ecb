"""A replicated log, ready to use: one node of it, with its sockets, files and clock.

It builds on `dledger.log` and `dledger.raft`.

``ledger``    :func:`open_ledger`, and what it opens
``node``      takes part in its group until it is fenced
``config``    the settings of a node, and what it says of itself
``opening``   opens its log, and repairs it from its peers if it must
``leaving``   leaves leadership to another node
``stepping``  steps the engine of Raft when something is due
``syncing``   syncs what was written: at once, or some time later
``exporting``  a copy of a replica, while it serves
``restoring``  a replica made of a copy
``upkeep``    segments, checkpoints, and checks for damage
``outcome``   waits for one call of a callback
"""
