"""What the replicas of a broker group agree on: a function of the log, and of nothing else.

`machine` applies entries to `topics`, `subscriptions`, `offsets`, `locks`, `dedup`, `moves` with
`waiting`, `consume_queue` and `key_index`. What an entry of messages adds: `indexing`; what else an
entry can say: `control`. `snapshot` saves it, so that a restart replays only the rest.
"""
