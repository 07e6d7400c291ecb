"""Pages of the log that a replica has read belong to the kernel, not to its memory."""

from __future__ import annotations

import pytest
import trio

from dledger.log.disk import Disk
from dledger.log.segments.segment import Segment
from mqlocal import local_cluster


async def test_followers_drop_the_pages_that_they_have_applied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each follower reads what it applies from its mapped file; the leader has it in memory."""
    read: set[Segment] = set()
    raw = Segment.raw.fget
    assert raw is not None

    def noted(segment: Segment) -> memoryview:
        read.add(segment)
        view: memoryview = raw(segment)
        return view

    monkeypatch.setattr(Segment, "raw", property(noted))
    dropped: list[memoryview] = []
    monkeypatch.setattr(Disk, "forget_pages", lambda _disk, view: dropped.append(view))
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        for _ in range(100):
            await producer.send_many("T", [bytes(1000)] * 20)
            await trio.sleep(0.005)
        read.clear()
        dropped.clear()
        for _ in range(100):
            await producer.send_many("T", [bytes(1000)] * 20)
            await trio.sleep(0.005)

        assert len(read) >= 2
        # Half a second of load: each of them some twenty times, if it is done at all.
        assert len(dropped) >= 10 * len(read)
