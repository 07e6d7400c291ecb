"""The broker: topics, queues and consumer groups over one replicated log.

Layout
------
``app``          the process: ledger, listener, name servers, snapshots
``starting``     from the command line to a process, or to a reason why not
``broker``       a broker without its sockets: the handlers wired to a replica's state
``requests``     the handlers, by what they are for
``leader``       what only the leader does: offsets, drafts, appends, definitions
``state``        what all replicas agree on, a function of the log
``sql``          SQL92 filters: a condition over a message's properties
``registering``  a broker and its name servers
``upkeep``       old messages, a full disk, damaged files
``config``       the settings
``limits``       the bounds
``refusal``      what a client is told when something is not done
``testing``      the real broker over a ledger in memory
"""

from dledger.version import __version__ as __version__
