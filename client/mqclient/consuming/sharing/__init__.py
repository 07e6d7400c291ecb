"""The queues that a consumer reads, and the place where its offsets are kept.

``mode``        what a consumer's parameters come to
``plan``        who reads what: shared by a strategy, everything, or queues that were chosen (pure)
``patterns``    topics by a pattern of their names
``leases``      how long a lock may be trusted (pure)
``locks``       the locks of an ordered consumer's queues
``offsets``     where offsets are kept: by the brokers, in a file, nowhere
``commits``     the commits of one queue, one after the other
``starts``      where in a queue a place or a time is
``beginnings``  what is older, a queue or the reading of it
"""
