"""The broker: topics, queues and consumer groups over one replicated log.

Layout
------
``mqbroker``      the command of that name
``app``           the process: ledger, listener, name servers, snapshots
``starting``      from the command line to a running process, or an error message
``restoring``     a store made of a copy
``broker``        a broker without its sockets: the handlers wired to a replica's state
``delivering``    the loops that deliver delayed messages
``requests``      the handlers of requests
``flow``          counts traffic, and holds back who sends or reads faster than an operator wants
``leader``        what only the leader does: offsets, drafts, appends, definitions
``state``         the state that all replicas derive from the log
``sql``           SQL92 filters: a condition over a message's properties
``registration``  registers this replica with its name servers, with a proof
``rolling``       takes over a changed secret when no other server is locked out by it
``metrics``       figures for Prometheus
``upkeep``        removes old messages, watches the disk, mends derived files
``config``        the settings: what the keys mean together, and which values are refused
``keys``          the keys of the config file, each with type, default and meaning
``limits``        the bounds
``tables``        the bounds of the state's tables, together (pure)
``refusal``       error answers to clients
``testing``       the real broker over a ledger in memory
"""

from dledger.version import __version__ as __version__
