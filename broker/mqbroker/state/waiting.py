"""Messages of one queue that wait, in no particular order: timed ones, and half messages. Pure.

They are part of the replicated state: a message waits from the entry that stored it until the move
(see `mqbroker.state.moves`) that takes it. The heap that finds the next ones is derived from this.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from mqbroker.state.aside import Unusable
from mqbroker.state.moves import Move


class Waiting:
    """Queue offset -> a time in ms: when the message is due, or since when it waits."""

    def __init__(self) -> None:
        self._at_ms: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []  # (time, offset); some no longer wait

    def __len__(self) -> int:
        return len(self._at_ms)

    def __contains__(self, offset: int) -> bool:
        return offset in self._at_ms

    def items(self) -> Iterator[tuple[int, int]]:
        """(offset, time in ms) of all, in the order in which they came."""
        return iter(self._at_ms.items())

    def first_offset(self) -> int | None:
        """The oldest message that waits."""
        return next(iter(self._at_ms), None)

    def add(self, offset: int, at_ms: int) -> None:
        """A message waits from now on."""
        self._at_ms[offset] = at_ms
        heapq.heappush(self._heap, (at_ms, offset))

    def check(self, move: Move) -> None:
        """Raise Unusable if one of the messages does not wait."""
        if sum(max(0, end - first) for first, end in move.ranges) > len(self._at_ms):
            raise Unusable(f"it takes more messages of {move.topic} than wait there")
        taken: set[int] = set()
        for first, end in move.ranges:
            for offset in range(first, end):
                if offset not in self._at_ms or offset in taken:
                    raise Unusable(
                        f"it takes message {offset} of {move.topic}, which does not wait there"
                    )
                taken.add(offset)

    def take(self, move: Move) -> None:
        """Messages no longer wait. They must have been checked."""
        for first, end in move.ranges:
            for offset in range(first, end):
                del self._at_ms[offset]

    def next_ms(self) -> int | None:
        """The earliest time; None if none waits."""
        while self._heap and self._heap[0][1] not in self._at_ms:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int, count_max: int) -> list[int]:
        """The offsets whose time has come, the earliest first; they keep waiting."""
        found: list[tuple[int, int]] = []
        while len(found) < count_max:
            at_ms = self.next_ms()
            if at_ms is None or at_ms > now_ms:
                break
            found.append(heapq.heappop(self._heap))
        for each in found:
            heapq.heappush(self._heap, each)
        return [offset for _, offset in found]

    def dump(self) -> list[tuple[int, int]]:
        """What a snapshot keeps."""
        return list(self._at_ms.items())

    def restore(self, items: Iterable[tuple[int, int]]) -> None:
        """Take over what a snapshot kept."""
        self._at_ms = dict(items)
        self._heap = [(at_ms, offset) for offset, at_ms in self._at_ms.items()]
        heapq.heapify(self._heap)
