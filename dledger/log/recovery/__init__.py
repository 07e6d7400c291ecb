"""Damage to a log: how it is found, and how it is mended.

``startup``      opens a log after a stop, a crash or a power loss
``tail``         reads a segment's bytes after a crash and says where the log ends (pure)
``scan``         reads a segment's bytes to the end, whatever is damaged on the way (pure)
``checkpoint``   what is known of sealed segments, so that a restart reads only the last ones
``checkpoints``  when a checkpoint is due, and what is in it
``scrub``        reads sealed segments again, to find damage before a reader does
``repair``       writes a leader's entries over damaged ones, in a log that is not open
``rescue``       gives a file that the disk can't read everywhere a copy that can be repaired
``verify``       checks a replica's folder from outside, without changing it
"""
