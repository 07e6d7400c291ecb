"""The tags of frames between two nodes after the handshake: one end makes them, the other checks.

A frame is a short head and, mostly, a run of entries, which a leader sends to several peers. Each
link has its own key, so each needs its own tag, but the run's bytes are the same. So a tag covers
the head itself, and the SHA-256 of the run, which is computed once. That hash is nearly the whole
cost of tags. The head says how long both are, so no two frames give the same input.
"""

from __future__ import annotations

import hashlib
import weakref

from dledger.buffers import Buffer
from dledger.raft.library.messages import head_end
from dledger.trust.proof import TAG_BYTES, Session, Tags


class RunHash:
    """SHA-256 of runs. The hash of the same object is kept, and not computed again.

    So its bytes must not change: a leader makes a new object for each round of sending.
    """

    def __init__(self) -> None:
        self._known: weakref.ref[memoryview] | None = None
        self._digest = b""

    def of(self, run: Buffer) -> bytes:
        """The hash of a run."""
        if self._known is not None and self._known() is run:
            return self._digest
        self._digest = hashlib.sha256(run).digest()
        self._known = weakref.ref(run) if isinstance(run, memoryview) else None
        return self._digest


class Sealing:
    """One connection's tags, in both directions."""

    def __init__(self, session: Session, run_hash: RunHash) -> None:
        self._sending = Tags(session.sending_key)
        self._receiving = Tags(session.receiving_key)
        self._run_hash = run_hash

    def seal(self, buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        """Append the tag to a frame, which is given as a head and perhaps a run."""
        head, *runs = buffers
        return (*buffers, self._sending.next(head, *map(self._run_hash.of, runs)))

    def open(self, sealed: memoryview) -> memoryview:
        """Check the tag behind a frame, and return the frame. Raises FrameError unless it is the
        next one."""
        frame, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
        end = head_end(frame)
        head, run = frame[:end], frame[end:]
        hashed = [hashlib.sha256(run).digest()] if len(run) else []
        self._receiving.check(tag, head, *hashed)
        return frame
