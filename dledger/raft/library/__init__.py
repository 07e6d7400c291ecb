"""PySyncObj behind our journal and transport. No other folder uses a name of it.

``adapter``    the library's private names that are used, and why
``journal``    our segmented log, as the library's journal
``transport``  what the library calls, and is called with: drops what Raft must not act on
``seams``      what those two need of the rest of Raft
"""
