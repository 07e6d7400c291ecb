"""How much may be in flight to a peer, and how fast a peer that is far behind may catch up. Pure.

A follower that copies a whole log could use up the leader, the network and the disks. So there is a
bound on what was sent to a peer and is not acknowledged. And while the leader has appends under
way, a peer that is far behind gets a limited number of bytes a second. A peer that keeps up meets
neither bound.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from dledger import limits


@dataclass(slots=True)
class FlowControl:
    """Bytes in flight to one peer, on one link."""

    in_flight_bytes: int = 0
    _sent: deque[tuple[int, int]] = field(default_factory=deque)
    _resume_at: float = 0.0

    def may_send(self, now: float, *, behind_bytes: int, busy: bool) -> bool:
        """Whether entries may be sent now. `behind_bytes`: what the peer has not been sent yet;
        `busy`: the leader commits appends."""
        if self.in_flight_bytes >= limits.PEER_IN_FLIGHT_BYTES_MAX:
            return False
        far_behind = behind_bytes > limits.PEER_IN_FLIGHT_BYTES_MAX
        return not (busy and far_behind) or now >= self._resume_at

    def sent(self, last_index: int, size_bytes: int, now: float) -> None:
        """Entries up to `last_index` were sent."""
        self._sent.append((last_index, size_bytes))
        self.in_flight_bytes += size_bytes
        took_s = size_bytes / limits.CATCH_UP_BYTES_PER_S
        self._resume_at = max(self._resume_at, now) + took_s

    def acknowledged(self, index: int) -> None:
        """The peer holds everything up to `index`."""
        while self._sent and self._sent[0][0] <= index:
            self.in_flight_bytes -= self._sent.popleft()[1]

    def start_again(self) -> None:
        """Forget what was in flight: it is sent again from an earlier entry."""
        self._sent.clear()
        self.in_flight_bytes = 0
