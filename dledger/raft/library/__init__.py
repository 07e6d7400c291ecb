"""PySyncObj behind our journal and transport: the only folder that knows a name of it.

``adapter``    the only module that imports it: the names that are used, and why
``journal``    gives it our segmented log for its own
``transport``  stands between it and the links: drops what Raft must not act on
``peer``       what a node knows of each of its peers
``messages``   what peers say to each other: length-prefixed msgpack, and raw runs of the log (pure)
"""
