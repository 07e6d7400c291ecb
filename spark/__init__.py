"""Spark reads the replicas' own files and a history of what clients saw, and judges them.

Layout: `schema`, `planning`, `entries`, `records`, `reader`, `source` are the batch data source
`dledger`; `session` finds a Java and starts Spark; `history` reads a history; `judge/` holds one
module per property; `verdict` and `report` say what was found; `auditing` does it all, and
`mqaudit` is the command. `synthetic` and `planting` write replicas and break them, to prove that
the judges see it.
"""
