"""Damage to a log: how it is found, and how it is mended.

``startup``      opens a log after a stop, a crash or a power loss
``scrub``        reads sealed segments again, to find damage before a reader does
``repair``       writes a leader's entries over damaged ones, in a log that is not open
``rescue``       gives a file that the disk can't read everywhere a copy that can be repaired
``verify``       checks a replica's folder from outside, without changing it
"""
