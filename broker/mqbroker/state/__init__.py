"""What the replicas of a broker group agree on: a function of the log, and of nothing else.

``machine``        applies entries to all of the below
``control``        what an entry can say that is no message (pure)
``moves``          messages that leave a queue of the broker's own for where they belong (pure)
``waiting``        messages of one queue that wait (pure)
``topics``         topics, and the rules by which one comes to be (pure)
``attributes``     their named settings (pure)
``subscriptions``  consumer groups (pure)
``offsets``        how far each group is (pure)
``locks``          queues that one client holds (pure)
``dedup``          which appends are in the log already (pure)
``aside``          entries that have no effect, and what is kept of them (pure)
``derived``        files made from the log: consume queues, key index
``snapshot``       all of it, so that a restart replays only the rest
``kept``           reads what a log or a snapshot keeps, whoever wrote it (pure)
"""
