"""PySyncObj behind our journal and transport: the only folder that knows a name of it.

``adapter``        the only module that imports it: the names that are used, and why
``journal``        gives it our segmented log for its own
``transport``      what it calls, and is called with: drops what Raft must not act on
``peers``          the links to the peers, and what goes over them
``peer``           what a node knows of each of its peers
``acknowledging``  what this node acknowledges, and counts of others' acknowledgements
``messages``       what peers say: length-prefixed msgpack, and raw runs of the log (pure)
"""
