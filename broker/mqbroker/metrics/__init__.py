"""A broker's figures for Prometheus: RocketMQ 5's names with their labels, and ours.

Layout
------
``sources``   where figures come from
``naming``    values of labels, as RocketMQ writes them (pure)
``members``   a replica's part in the group, and how far the others are
``server``    figures that every replica has: log, disk, clients
``traffic``   what came and what was given, from the leader alone (pure)
``timers``    messages that wait for their time, from the leader alone
``times``     how long requests took
``lag``       how far groups are behind, from the leader alone
``details``   the same by queue, with the reason
``page``      all of it as pages
``history``   what is kept of the last hour, without Prometheus
``health``    whether the replica is well, and may be stopped
``endpoint``  the port

Of a group only the leader reports traffic and lag: each replica has the same messages, and sums
would be three times too high. Each series has the label `member`, so that a counter's series ends
with a leadership and another one begins.
"""
