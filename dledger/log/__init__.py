"""The replicated log on disk: one logical byte address space, cut into segment files.

Layout
------
``entry``        the 48-byte entry header, its two checksums, and what an entry is (pure)
``segments``     the files, and the room for more of them
``scanning``     what a segment's bytes say
``store``        :class:`~dledger.log.store.SegmentedLog`: append, cut, sync, trim, replace
``checkpoints``  when a checkpoint is due, and what is in it
``jobs``         slow work that a log hands out: syncs and removals
``writing``      what was appended and is not in the files yet
``reading``      entries by index, bytes by position
``head``         where a log begins whose first segments are gone (pure)
``hard_state``   term, vote and eligibility, durable before any message that depends on them
``recovery``     finding damage, and mending it
``replica``      the folder of all this: it belongs to one node, and one process at a time
``disk``         the few file operations that durability rests on: the seam for simulated disks

Positions are identical on every replica, byte for byte: where an entry lands depends only on the
entries before it and on the segment size, which a group agrees on.
"""
