"""What a log may have suffered, how it is found, and how it is made good again.

``startup``     opens a log after a stop, a crash or a power loss
``tail``        reads a segment's bytes after a crash and says where the log ends (pure)
``scan``        reads a segment's bytes to the end, whatever is damaged on the way (pure)
``checkpoint``  what is known of sealed segments, so that a restart reads only the last ones
``scrub``       reads sealed segments again, for damage that nobody has come upon
``repair``      writes a leader's entries over damaged ones, in a log that is not open
``verify``      checks a replica's folder from outside, without changing it
"""
