"""The connections between the nodes of a group, under trio.

``links``       one connection to each peer: dialled, accepted, written, read
``dialling``    how one peer is reached: names, addresses, one attempt
``handshake``   the handshake on a connection: ids and proofs
``frame_tags``  the tags of frames after the handshake
"""
