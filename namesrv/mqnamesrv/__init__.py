"""The name server: which broker serves which queues of which topic, right now.

``app``           a socket, a clock, and the scan for silent brokers
``mqnamesrv``     the command of that name
``dispatch``      requests, one small method per code
``kv_requests``   those for the key-value config
``routes``        the route table: groups, members, who leads (pure)
``groups``        groups and members, and which registrations are refused (pure)
``topics``        which groups serve a topic (pure)
``registration``  reads a broker's registration (pure)
``door``          which requests are allowed (pure)
``users``         users as broker groups tell them, and what they may ask
``saved``          what is saved over restarts: key-value config, groups that are away
``rolling``       takes over a changed secret
``config``        the settings
``metrics``       figures for Prometheus, on a port of their own
``limits``        the bounds

Name servers do not talk to each other. Every broker registers with each of them and a client asks
any one, so their tables agree if the brokers' registrations arrive.
"""

from dledger.version import __version__ as __version__
