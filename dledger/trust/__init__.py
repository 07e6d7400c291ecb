"""Tells members from strangers: the cluster has a secret, and members prove that they know it.

``secret``   where the secret is kept, and when there must be one
``rolling``  which secrets are valid while one takes another's place (pure)
``proof``    how two servers prove to each other that they know it (pure)
``signing``  requests that carry a tag made with the secret (pure)
``accepting``  the proofs on a server's connections (pure)
``admin``    the addresses from which tools may change something (pure)
``rights``   what a request needs: actions on resources (pure)
``policies``  what a user may do, and which entry decides (pure)
``users``    the table of users (pure)
``signatures``  the signatures of users' requests (pure)
``floods``   how many wrong ones an address may have verified (pure)
``wrapping``  passwords as logs hold them (pure)
``audit``    what an audit log says of changes and refusals (pure)
``guard``    who asks, and whether that one may (pure)
"""
