"""Faults of what servers live in: what the kernel gives them, and who belongs to what.

``resources``  too few descriptors, no room in files, little memory or processor
``members``    nodes that come to a group and go
``strangers``  a name server that knows nothing
``renewing``   new certificates, and a new secret
"""
