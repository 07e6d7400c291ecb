"""Traffic: how much there is, and how fast a topic takes messages and a group is given them.

``bucket``      what may pass now, and when there is room again (pure)
``control``     the buckets of topics and groups that have a rate, and what was held back (pure)
``following``   how long followers have been behind (pure)
``latencies``   how long requests took (pure)
``limits``      bounds of all this
``rates``       traffic over the last seconds and minutes (pure)
``statistics``  traffic by topic and group, by minute, hour and day (pure)
``traffic``     traffic since the start (pure)

The rates are attributes of topics and groups, so entries of the log. The buckets are memory of the
leader: a new one begins with full buckets, so a failover lets a second's worth pass at once.
"""
