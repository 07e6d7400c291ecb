"""Sends that become one entry: group commit.

Stock clients send their messages one by one, and so does ours where each is waited for. An entry
for each would cost every replica the same each time: a header with two CRCs, its share of a step, a
place in queues and indexes. So sends that come while enough entries are on their way wait until the
next one is applied, and are then appended together. The busier a leader, the larger its entries;
with little to do nobody waits.

So do small batches of our producers, as those of a producer with many topics are.

The entry is of the kind SENDS, which says that each of its messages may have been sent by itself:
each has its own key in the dedup window, so that a retry finds it. A batch lies there in one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from dledger.buffers import Buffer
from dledger.raft.appends import Appended, OnDone
from mqbroker import limits
from mqbroker.leader.appending.drafts import PlainDraft
from mqbroker.leader.assignments import Assignments


class Send(NamedTuple):
    """A draft of one message or a few, and who wants to know what became of it."""

    draft: PlainDraft
    on_done: OnDone

    @property
    def topic(self) -> str:
        """Name of the topic that the message is stored in."""
        return self.draft.places[0][0]


class Together:
    """The draft of one entry with several sends: those to one topic side by side, and those to one
    queue if each goes to one only. What goes to one queue stays in order."""

    def __init__(self, sends: Sequence[Send], assignments: Assignments) -> None:
        if all(len(send.draft.places) == 1 for send in sends):
            self.sends = sorted(sends, key=lambda send: send.draft.places[0])
        else:
            self.sends = sorted(sends, key=lambda send: send.topic)
        sizes = [send.draft.size for send in self.sends]
        self.size = sum(sizes)
        self.starts = [0, *accumulate(sizes[:-1])]
        self._assignments = assignments

    @property
    def places(self) -> list[tuple[str, int]]:
        """The topics and queues that the messages go to."""
        return [place for send in self.sends for place in send.draft.places]

    def place(self, body_position: int, index: int, term: int) -> Buffer:
        """Fill in where the records went. All have one store time."""
        now_ms = self._assignments.now_ms()
        return b"".join(
            send.draft.fill_in(body_position + start, now_ms)
            for send, start in zip(self.sends, self.starts, strict=True)
        )

    def outcomes(self, appended: Appended) -> list[Appended]:
        """The outcome of each send: its own place."""
        return [
            Appended(appended.index, appended.term, appended.position + start, appended.result)
            for start in self.starts
        ]


class Waiting:
    """The sends that wait to be appended together."""

    def __init__(self) -> None:
        self._sends: list[Send] = []
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._sends)

    def add(self, send: Send) -> bool:
        """Add a send; returns whether the sends are enough for an entry."""
        self._sends.append(send)
        self._size_bytes += send.draft.size
        return (
            len(self._sends) >= limits.SENDS_TOGETHER_MAX
            or self._size_bytes >= limits.SENDS_TOGETHER_BYTES
        )

    def take(self) -> list[Send]:
        """All of them, which wait no longer."""
        taken, self._sends, self._size_bytes = self._sends, [], 0
        return taken
