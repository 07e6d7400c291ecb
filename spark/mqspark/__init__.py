"""Spark reads topics; and the replicas' own files and a history of what clients saw, to judge them.

``mqaudit``    the command of that name
``auditing``   an audit from end to end
``session``    finds a Java and starts Spark
``processes``  Java's classes, Spark's Python workers, and the end of an audit by Ctrl-C
``topics``     topics of live clusters as tables and streams: the data source `rocketmq`
``source``     replicas' files as a DataFrame: the data source `dledger`
``history``    a history's files, their lines as columns, and packed as Parquet
``screening``  which messages and queues need a closer look
``judge``      one module per property
``verdict``    puts the evidence before every judge
``exhibits``   what shows each violation: history lines and bytes
``report``     prints the results
``paths``      looks at the given places before Spark starts
``limits``     the bounds
``testing``    replicas and histories without a broker, and faults in them
"""

from dledger.version import __version__ as __version__
