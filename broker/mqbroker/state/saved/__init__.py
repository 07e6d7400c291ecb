"""The state as bytes: what a restart begins with, and what another replica is given.

``snapshot``  the file, and the state's fields
``picture``   a picture of the state, piece by piece (pure)
``columns``   what it has of messages that wait (pure)
``kept``      reads what other versions have written to a log or a snapshot (pure)
"""
