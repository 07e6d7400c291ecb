"""Tells members from strangers: the cluster has a secret, and members prove that they know it.

``secret``   where the secret is kept, and when there must be one
``proof``    how two servers prove to each other that they know it (pure)
``signing``  requests that carry a tag made with the secret (pure)
``accepting``  the proofs on a server's connections (pure)
``admin``    the addresses from which tools may change something (pure)
"""
