"""Spark reads topics; and the replicas' own files and a history of what clients saw, to judge them.

``mqaudit``    the command of that name
``auditing``   an audit from end to end
``session``    finds a Java and starts Spark
``daemon``     forks Spark's Python workers
``classes``    keeps the classes that Java has loaded, for a quicker start
``topics``     topics of live clusters as tables and streams: the data source `rocketmq`
``source``     replicas' files as a DataFrame: the data source `dledger`
``history``    a history's files, and the run that they describe
``events``     a history's lines as columns
``packing``    a history as Parquet
``screening``  which messages and queues need a closer look
``judge``      one module per property
``lives``      which life of its topic a statement is about
``verdict``    puts the evidence before every judge
``exhibits``   what shows each violation: history lines and bytes
``report``     prints the results
``interrupting``  ends an audit by Ctrl-C
``paths``      looks at the given places before Spark starts
``limits``     the bounds
``testing``    replicas and histories without a broker, and faults in them
"""

from dledger.version import __version__ as __version__
