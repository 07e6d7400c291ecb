"""The tags of frames between two nodes after the handshake: one end makes them, the other checks.

A frame is a short head and, mostly, a run of entries, which a leader sends to several peers. Each
link has its own key, so each needs its own tag, but the run's bytes are the same. So a tag covers
the head itself, and a hash of the run, which is computed once and is nearly the whole cost of tags.
The head says how long both are, so no two frames give the same input.

The hash is BLAKE3 for long runs and SHA-256 for short ones, for speed alone: no two runs with the
same hash are known of either. Of a run of 512 KiB BLAKE3 takes 70 us and SHA-256 300; of one of
1 KiB it is 2.7 us and 1.1 (with AVX-512, and with the processor's own SHA-256).
"""

from __future__ import annotations

import hashlib
import weakref

from blake3 import blake3

from dledger.buffers import Buffer
from dledger.limits import LONG_BODY_BYTES
from dledger.raft.messages import head_end
from dledger.trust.proof import TAG_BYTES, Session, Tags


def hash_of(run: Buffer) -> bytes:
    """A run's hash, 32 bytes. Which one it is follows from the run's length."""
    return (blake3(run) if len(run) >= LONG_BODY_BYTES else hashlib.sha256(run)).digest()


class RunHash:
    """Hashes of runs of entries, as frames carry them. The hash of the same object is kept, and not
    computed again.

    So its bytes must not change: a leader makes a new object for each round of sending.
    """

    def __init__(self) -> None:
        self._known: weakref.ref[memoryview] | None = None
        self._digest = b""

    def of(self, run: Buffer) -> bytes:
        """The hash of a run."""
        if self._known is not None and self._known() is run:
            return self._digest
        self._digest = hash_of(run)
        self._known = weakref.ref(run) if isinstance(run, memoryview) else None
        return self._digest


class FrameTags:
    """The tags of a connection, in both directions."""

    def __init__(self, session: Session, run_hash: RunHash) -> None:
        self._sending = Tags(session.sending_key)
        self._receiving = Tags(session.receiving_key)
        self._run_hash = run_hash

    def append(self, buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        """Append the tag to a frame, which is given as a head and perhaps a run."""
        head, *runs = buffers
        return (*buffers, self._sending.next(head, *map(self._run_hash.of, runs)))

    def check(self, tagged: memoryview) -> memoryview:
        """Check the tag behind a frame, and return the frame. Raises FrameError unless it is the
        next one."""
        frame, tag = tagged[:-TAG_BYTES], tagged[-TAG_BYTES:]
        end = head_end(frame)
        head, run = frame[:end], frame[end:]
        hashed = [hash_of(run)] if len(run) else []
        self._receiving.check(tag, head, *hashed)
        return frame
