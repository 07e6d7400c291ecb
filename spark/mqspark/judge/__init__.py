"""One module per property of the design, or family of properties.

Each has a function from the evidence (DataFrames) to a DataFrame of violations with the columns of
:data:`mqspark.judge.violations.COLUMNS`. No row means that the property holds. A judge says only
what the evidence proves:

- A send without an answer may have happened or not: its message may be in the log, or not.
- The tail of a replica's log beyond what is *settled* proves nothing. Settled is what a client
  was told of (acknowledged or delivered, and in a log everything before that too) and what all
  replicas hold alike, since then no future leader can be without it.
- Deliveries may repeat. What they may not do is skip, or come before their predecessors.

``evidence``      all that judges may look at, gathered once
``testimony``     what every source says of every message, and the digest of it
``members``       who the replicas are, as numbers
``violations``    the form of findings
``durability``    property 1
``authenticity``  property 2
``identity``      property 3
``order``         property 4
``replication``   properties 5 and 13
``copies``        property 9
"""
