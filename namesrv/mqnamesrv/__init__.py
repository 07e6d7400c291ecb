"""The name server: which broker serves which queues of which topic, right now.

``app``        a socket, a clock, and the scan for silent brokers
``mqnamesrv``  the command of that name
``requests``   what brokers and clients ask, and which users may
``routing``    the route table, and the registrations that go into it
``saved``      what is saved over restarts: key-value config, groups that are away
``door``       which requests are allowed (pure)
``rolling``    takes over a changed secret
``config``     the settings
``metrics``    figures for Prometheus, on a port of their own
``limits``     the bounds

Name servers do not talk to each other. Every broker registers with each of them and a client asks
any one, so their tables agree if the brokers' registrations arrive.
"""

from dledger.version import __version__ as __version__
