"""Calls of ours between a request and its place in the log, and back to the answer.

A way that a reader can hold in his head: a layer that only passes on is noticed here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FrameType

import pytest

from dledger.net.connection import Connection
from dledger.raft.appends import PendingAppends
from mqbroker.leader.appending.drafts import BatchDraft
from mqclient import Message
from mqlocal import local_cluster

DOWN_MAX = 9
UP_MAX = 5


def calls_since(code: CodeType) -> int | None:
    """How many calls the caller is away from a function; None if that is not running."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None:
        if frame.f_code is code:
            return count
        frame, count = frame.f_back, count + 1
    return None


class Way:
    """The longest ways that were seen, down to a draft's place and up to an answer."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.down = self.up = 0
        place, send = BatchDraft.place, Connection.send
        handle, applied = Connection._handle.__code__, PendingAppends.applied.__code__

        def watched_place(draft: BatchDraft, body_position: int, index: int, term: int) -> object:
            self.down = max(self.down, calls_since(handle) or 0)
            return place(draft, body_position, index, term)

        def watched_send(connection: Connection, command: object) -> None:
            self.up = max(self.up, calls_since(applied) or 0)
            send(connection, command)  # type: ignore[arg-type]

        patch.setattr(BatchDraft, "place", watched_place)
        patch.setattr(Connection, "send", watched_send)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Iterator[Way]:
    """The calls on the way of a message, watched during a test."""
    return Way(monkeypatch)


async def test_a_message_passes_few_calls(way: Way) -> None:
    """Few calls lead from the connection to the message's place, and from there to the answer."""
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        for _ in range(3):
            await producer.send(Message("T", b"x"))

    assert 0 < way.down <= DOWN_MAX
    assert 0 < way.up <= UP_MAX
