"""A network that can be broken: a proxy of ours on every link, without root, or the kernel.

``rules``    what a link does to bytes, and shapes of partitions as data (pure)
``lane``     one direction of one connection, by those rules (pure)
``proxy``    the process that forwards
``control``  the words between harness and proxy
``kernel``   words for nftables and tc (pure)
``switch``   namespaces, and the links between them
``needs``    what the machine lacks for them
"""
