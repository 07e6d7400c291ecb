"""The data source `rocketmq`: topics of live clusters as tables and streams.

``data_source``  what Spark sees: options in, readers out
``options``      the options, checked (pure)
``positions``    where reading is, as Spark's checkpoint keeps it (pure)
``planning``     from positions to ranges, and how far a batch goes (pure)
``topics``       which topics and queues are meant, and where reading begins
``batch``        a read from one position to another
``stream``       a stream of such reads
``reading``      reads one range on a worker
``columns``      records as Arrow columns
``losses``       what is missing: an error, or rows of a table
``sink``         sends a task's rows
``sink_once``    stages a task's rows, and has batches decided
``sink_stream``  the same for streams
``sink_options``  its options and columns (pure)
``watching``     how far queries are behind, and jobs that take long
"""
