"""The name server: which broker serves which queues of which topic, right now.

``app``           a socket, a clock, and the scan for silent brokers
``dispatch``      requests, one small method per code
``routes``        the route table: groups, members, who leads (pure)
``topics``        which groups serve a topic (pure)
``registration``  what a broker says when it registers (pure)
``door``          who may change what (pure)
``kv``            the key-value config (pure)
``kv_file``       the same on disk
``config``        the settings
``limits``        the bounds

Name servers know nothing of each other. Every broker registers with each of them and a client
asks any one, so their tables agree as far as the brokers' registrations arrive.
"""

from dledger.version import __version__ as __version__
