"""Flow control: how fast a topic takes messages, and how fast a group is given them.

``bucket``   what may pass now, and when there is room again (pure)
``control``  the buckets of topics and groups that have a rate, and what was held back (pure)

The rates are attributes of topics and groups, so entries of the log. The buckets are memory of the
leader: a new one begins with full buckets, so a failover lets a second's worth pass at once.
"""
