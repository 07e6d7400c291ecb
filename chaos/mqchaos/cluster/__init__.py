"""Clusters of real processes on this machine, to be used and to be broken.

``layout``     names, ports, directories, config files (pure)
``cluster``    starts and stops one, each server by itself
``links``      who dials whom, and where a proxy listens for it
``processes``  its servers, known by their pid alone
``certificates``  of a cluster with TLS
``access``     how clients get into one: by which certificates, as which user
``probe``      what it says of itself over the wire
``resizing``   a node more, or one less
``ext4``       file systems that can lose their power
``own_disk``   two of them for a node: its own, and the storage below
``busy``       processes beside them that want a processor, too
``faked_clock``  clocks that whole processes see
``tools``      the machine's own tools, for what only root can do
"""
