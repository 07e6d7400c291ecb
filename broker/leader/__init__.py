"""What only the leader does: it decides what goes into the log, and in which form.

`role` says whether this replica leads. `assignments` hands out queue offsets and store times,
`drafts` are batches waiting for their place, `append` puts each into the log once; `resends` tells
a stock client's retry from another send. `definitions` makes topics and groups, `delays` and
`deliveries` let messages wait and arrive, `transactions` end. `offset_commits` gathers commits,
`outcome` tells how a change ended.
"""
