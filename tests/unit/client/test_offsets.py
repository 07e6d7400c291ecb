"""Offset commits of a member, and what they tell brokers."""

from __future__ import annotations

from typing import cast

import trio
import trio.testing

from dledger.errors import RequestTimeout
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from mqclient.connection.leaders import LeaderFinder
from mqclient.consuming.progress import Place
from mqclient.consuming.sharing.offsets import BrokerOffsets

QUEUE = MessageQueue("T", "broker-a", 0)


class Group:
    """The leader: the group is at `offset`; commits are heard, and answered unless it `is_mute`."""

    def __init__(self, offset: int | None) -> None:
        self.offset = offset
        self.is_mute = False
        self.heard: list[tuple[int, bool | None]] = []
        self.answers = trio.Event()
        self.answers.set()
        self.under_way = self.most_under_way = 0

    async def granted(
        self, _what: str, _name: str, _topic: str, command: Command, *_: object
    ) -> Command:
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
            if self.offset is None:
                return command.reply(ResponseCode.QUERY_NOT_FOUND)
            return command.reply(ext=encode_header(QueryConsumerOffsetResponseHeader(self.offset)))
        header = decode_header(UpdateConsumerOffsetHeader, command)
        self.heard.append((header.commit_offset, header.sought_back))
        if self.is_mute:
            raise RequestTimeout("the test's leader is mute")
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.answers.wait()
        finally:
            self.under_way -= 1
        return command.reply()


async def commit(offsets: BrokerOffsets, *commits: int) -> None:
    for each in commits:
        await offsets.store({QUEUE: Place(each)}, 1.0)


def member_of(group: Group) -> BrokerOffsets:
    return BrokerOffsets("C", cast(LeaderFinder, group))


async def test_a_member_that_reads_on_has_not_sought_back() -> None:
    """However far the group is meanwhile: it knows only what it had itself."""
    group = Group(10)
    offsets = member_of(group)
    assert await offsets.load(QUEUE) == Place(10)
    await commit(offsets, 10, 15, 15, 20)
    assert [back for _, back in group.heard] == [False] * 4


async def test_a_member_that_seeks_back_says_so_once() -> None:
    """A member that seeks back says so once, and its next commits go on from there."""
    group = Group(10)
    offsets = member_of(group)
    await offsets.load(QUEUE)
    await commit(offsets, 20, 12, 14, 5, 6)
    assert [back for _, back in group.heard] == [False, True, False, True, False]


async def test_a_commit_of_unknown_outcome_may_be_kept() -> None:
    """A commit behind one of unknown outcome goes back, until one is answered."""
    group = Group(10)
    offsets = member_of(group)
    await offsets.load(QUEUE)
    group.is_mute = True
    await commit(offsets, 20, 12, 13)
    group.is_mute = False
    await commit(offsets, 14, 15)
    assert [back for _, back in group.heard] == [False, True, True, True, False]


async def test_a_queue_that_comes_again_begins_anew() -> None:
    """A queue that comes again begins anew: another member may have sought back meanwhile."""
    group = Group(10)
    offsets = member_of(group)
    await offsets.load(QUEUE)
    await commit(offsets, 20)
    group.offset = 5
    await offsets.load(QUEUE)
    await commit(offsets, 7)
    group.offset = None
    await offsets.load(QUEUE)
    await commit(offsets, 3)
    assert [back for _, back in group.heard] == [False] * 3


async def test_commits_of_a_queue_are_under_way_one_at_a_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Commits of a queue are under way one at a time, since brokers keep the last they handle.

    While it waits for its answer, only the newest place is sent next; each caller is told what is
    stored.
    """
    group = Group(0)
    offsets = member_of(group)
    await offsets.load(QUEUE)
    stored: dict[int, Place] = {}

    async def commit(offset: int) -> None:
        stored[offset] = (await offsets.store({QUEUE: Place(offset)}, 5.0))[QUEUE]

    group.answers = trio.Event()
    async with trio.open_nursery() as nursery:
        for offset in (10, 20, 30, 25):
            nursery.start_soon(commit, offset)
            await trio.sleep(0.1)
        assert [offset for offset, _ in group.heard] == [10]
        group.answers.set()
    assert [offset for offset, _ in group.heard] == [10, 25]
    assert stored == {10: Place(10), 20: Place(25), 30: Place(25), 25: Place(25)}
    assert group.most_under_way == 1


async def test_a_commit_waits_no_longer_than_its_caller_said(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A commit waits for an earlier one within its own time; a cancelled one blocks none."""
    group = Group(0)
    offsets = member_of(group)
    group.answers = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit, offsets, 10)
        await trio.sleep(0.1)
        began = trio.current_time()
        assert await offsets.store({QUEUE: Place(20)}, 0.5) == {}
        assert 0.5 <= trio.current_time() - began < 0.6
        nursery.cancel_scope.cancel()
    group.answers.set()
    with trio.fail_after(1):
        assert await offsets.store({QUEUE: Place(15)}, 0.5) == {QUEUE: Place(15)}
    assert [offset for offset, _ in group.heard] == [10, 15]
