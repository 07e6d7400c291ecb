"""Who is a member, and who only says so: one secret of the cluster, and proofs that it is known.

``secret``   where it is kept, and when there must be one
``proof``    how two servers prove to each other that they know it (pure)
``signing``  requests that carry a tag of it (pure)
"""
