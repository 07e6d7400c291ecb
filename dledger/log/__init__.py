"""The replicated log on disk: one logical byte address space, cut into segment files.

General layout
--------------
``entry``       the 48-byte entry header, its two checksums, and what an entry is (pure)
``recovery``    reads a segment's bytes after a crash and says where the log ends (pure)
``disk``        the few file operations that durability rests on: the seam for simulated disks
``segment``     one file: preallocated, written by position, read through a mapping
``checkpoint``  what is known of sealed segments, so that a restart reads only the last ones
``head``        where a log begins whose first segments are gone (pure)
``retention``   which segments may go (pure)
``hard_state``  term, vote and seat, durable before any message that depends on them
``repair``      writes a leader's entries over damaged ones, in a log that is not open
``scrub``       reads sealed segments again, for damage that nobody has come upon
``scan``        reads a segment's bytes to the end, whatever is damaged on the way (pure)
``verify``      checks a replica's folder without changing it
``reading``     what can be read of a log
``store``       :class:`~dledger.log.store.SegmentedLog`: append, cut, sync, trim, replace

Positions are identical on every replica, byte for byte: where an entry lands depends only on the
entries before it and on the segment size, which a group agrees on.
"""
