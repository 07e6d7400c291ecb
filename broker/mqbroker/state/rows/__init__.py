"""The state's tables as rows of bytes, for a snapshot.

``picture``  a picture of the state, piece by piece (pure)
``columns``  what it has of messages that wait (pure)
``other_versions``  reads what other versions have written to a log or a snapshot (pure)
"""
