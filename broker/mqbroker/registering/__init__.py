"""Registers this replica with its name servers, with a proof, and tracks what they know.

``registration``   registers, and sends heartbeats
``announcements``  what they have been told, and the answers that wait for that (pure)
"""
