"""The batch data source `dledger`: replicas' own files as a DataFrame.

``data_source``  what Spark sees: options in, a reader out
``schema``       its rows, as Spark types and as Arrow types
``planning``     from directories to one partition a segment
``members``      the replicas, as numbers
``derived``      what a broker makes from its log, compared with the log
``reader``       reads one segment on a worker
``records``      message records in an entry's body (pure)
``plain``        the same of many entries at once, where nothing is odd (pure)
``batches``      what entries say of batches that are stored whole (pure)
``columns``      Arrow columns of them
"""
