"""A broker and its name servers: who this replica is, the proof of it, and what they know of it.

``registration``   tells them
``proving``        proves it, on the connection on which it then tells
``announcements``  what they have heard, and the answers that wait until they have (pure)
"""
