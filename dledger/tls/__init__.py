"""Encryption of connections by TLS: for clients, name servers and members of a group.

``options``   what one end is given: files, and what it demands of the other end (pure)
``keys``      the keys of a config file, named as RocketMQ names them
``files``     contexts made of these files; an error names the file and the remedy
``reloading``  contexts are made again when their files change
``servers``   a server's contexts
``clients``   a client's context
``rehearsal``  whether other members would take a new certificate
``channel``   a socket that encrypts
``handshake``  how a connection begins, within bounds
``reasons``   what went wrong, in words (pure)
``dates``     how long a certificate is valid (pure)
``authority``  an authority of one's own, and the certificates that it signs

Connections keep the context that they began with. Nothing here is imported before TLS is asked for:
a client without it does not load `ssl`.
"""
