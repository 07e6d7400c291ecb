"""PySyncObj behind our journal and transport. No other folder uses a name of it.

``adapter``        the library's private names that are used, and why
``journal``        our segmented log, as the library's journal
``transport``      what the library calls, and is called with: drops what Raft must not act on
``peers``          the links to the peers, and what goes over them
``peer``           what a node knows of each of its peers
``acknowledging``  what this node acknowledges, and counts of others' acknowledgements
``messages``       what peers say: length-prefixed msgpack, and raw runs of the log (pure)
"""
