"""A network that can be broken without root: every link of a cluster passes a proxy of ours.

``rules``    what a link does to bytes, and shapes of partitions as data (pure)
``lane``     one direction of one connection, by those rules (pure)
``links``    who dials whom, and where the proxy listens for it
``proxy``    the process that forwards
``control``  the words between harness and proxy
"""
