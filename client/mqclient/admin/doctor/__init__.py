"""The doctor: faults of a cluster, and remedies.

``facts``      what was asked of servers, as values (pure)
``gathering``  asks them
``checks``     what of the facts is wrong (pure)
``replicas``   the checks of a broker group's members (pure)
``bundle``     facts, figures and logs in one archive, and reading one that anybody may have made

Facts are gathered at the edge, and judged as values: so an archive of facts is judged as a running
cluster is.
"""
