"""Promises of a ledger to programs, as tests to inherit.

The first class holds for any ledger, of one node in memory too; the second one for a group of three
whose nodes come and go. Both use only what a program can use, so they run on virtual time as well
as over real sockets. Each is given a group that has not done anything yet:

    class TestMine(GroupContract):
        @pytest.fixture
        def group(self) -> LedgerGroup: ...

Every operation gives a list at once, and puts its outcome there: what it returns, or an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Protocol
from unittest.mock import patch

from dledger import limits
from dledger.errors import (
    Busy,
    ChangePending,
    DledgerError,
    NotConfirmed,
    NotLeader,
    OutcomeUnknown,
    TooLarge,
    TransferFailed,
)
from dledger.log.entry import HEADER_BYTES, Entry, Kind, padded
from dledger.raft.appends import Appended

Outcome = list[Appended | DledgerError]


class LedgerGroup(Protocol):
    """The nodes of a group that are up, as their programs see them."""

    @property
    def up(self) -> list[str]:
        """The nodes that are up, in order."""

    def serves(self, node_id: str) -> bool:
        """Whether a node says that it leads."""

    def voters(self, node_id: str) -> list[str]:
        """The voters, as far as a node knows."""

    def entries(self, node_id: str) -> list[Entry]:
        """The entries that a node has applied, in order."""

    def append(self, node_id: str, body: bytes) -> Outcome:
        """Append an entry at a node; its outcome is put into the list when known."""

    def read(self, node_id: str) -> list[int | DledgerError]:
        """Ask a node up to where it may be read."""

    def transfer(self, node_id: str, target: str) -> list[str | DledgerError]:
        """Hand leadership over to `target`; the outcome is put into the list."""

    def add(self, node_id: str, newcomer: str) -> list[object]:
        """Add a node that is not up yet, or nothing is known of."""

    def remove(self, node_id: str, member: str) -> list[object]:
        """Remove a member from the group; the outcome is put into the list."""

    async def start(self, node_id: str) -> None:
        """Start a node on what its disk holds."""

    async def stop(self, node_id: str) -> None:
        """Stop a node without a word to the others."""

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds; fail if it takes much too long."""


async def leader_of(group: LedgerGroup) -> str:
    """Wait until a node serves."""
    await group.until(lambda: any(map(group.serves, group.up)))
    return next(filter(group.serves, group.up))


async def ended(group: LedgerGroup, *outcomes: Sequence[object]) -> None:
    """Wait until operations have their outcomes."""
    await group.until(lambda: all(outcomes))


async def append(group: LedgerGroup, *bodies: bytes) -> list[Appended]:
    """Append through the leader; all must be acknowledged."""
    leader = await leader_of(group)
    outcomes = [group.append(leader, body) for body in bodies]
    await ended(group, *outcomes)
    appended = [outcome[0] for outcome in outcomes if isinstance(outcome[0], Appended)]
    assert len(appended) == len(bodies), outcomes
    return appended


async def changed(group: LedgerGroup, change: Callable[[], Sequence[object]]) -> None:
    """Change the members; one change waits until the one before is committed."""
    outcome = change()
    await ended(group, outcome)
    while isinstance(outcome[0], ChangePending):
        await append(group)
        outcome = change()
        await ended(group, outcome)
    assert not isinstance(outcome[0], DledgerError)


def bodies_of(group: LedgerGroup, node_id: str) -> list[bytes]:
    """Bodies that programs appended, as a node has applied them."""
    return [bytes(e.body) for e in group.entries(node_id) if e.kind == Kind.MESSAGES]


async def level(group: LedgerGroup) -> None:
    """Wait until all that are up have applied the same."""
    await group.until(lambda: len({len(group.entries(node_id)) for node_id in group.up}) == 1)


def assert_equal_logs(group: LedgerGroup) -> None:
    """Every node holds the same entries, byte for byte, at the same positions."""
    first, *others = [group.entries(node_id) for node_id in group.up]
    assert all(entries == first for entries in others)


class LedgerContract:
    """Promises of any ledger, of one node or of a group."""

    async def test_what_was_acknowledged_is_there_in_order(self, group: LedgerGroup) -> None:
        """An acknowledged entry is everywhere at the index and position of its append, byte for
        byte.
        """
        bodies = [b"%d." % number * (1 + number * 7 % 90) for number in range(60)]
        appended = await append(group, *bodies)
        await level(group)
        assert_equal_logs(group)
        for node_id in group.up:
            held = {entry.index: entry for entry in group.entries(node_id)}
            for body, done in zip(bodies, appended, strict=True):
                entry = held[done.index]
                assert (entry.term, entry.position) == (done.term, done.position)
                assert (bytes(entry.body), entry.body_position) == (body, done.body_position)
            assert bodies_of(group, node_id) == bodies

    async def test_entries_lie_close_together(self, group: LedgerGroup) -> None:
        """Indices count by one, and each entry begins where the one before ends."""
        await append(group, *[bytes(size) for size in (0, 1, 8, 9, 200)])
        entries = group.entries(await leader_of(group))
        for before, entry in pairwise(entries):
            assert entry.index == before.index + 1
            assert entry.position == before.position + padded(HEADER_BYTES + len(before.body))

    async def test_an_append_that_is_too_large_is_refused_at_once(self, group: LedgerGroup) -> None:
        """Definitely not appended, and no harm to the next one."""
        leader = await leader_of(group)
        refused = group.append(leader, bytes(limits.ENTRY_BYTES_MAX))
        assert isinstance(refused[0], TooLarge)
        assert refused[0].definite
        await append(group, b"next")
        assert bodies_of(group, leader) == [b"next"]

    async def test_a_read_sees_what_was_acknowledged(self, group: LedgerGroup) -> None:
        """A read that begins after an acknowledgement gets that index, or a later one."""
        leader = await leader_of(group)
        for number in range(3):
            (appended,) = await append(group, b"%d" % number)
            read = group.read(leader)
            await ended(group, read)
            assert isinstance(read[0], int)
            assert read[0] >= appended.index
            assert len(bodies_of(group, leader)) == number + 1


class GroupContract(LedgerContract):
    """A ledger of three nodes."""

    async def followers(self, group: LedgerGroup) -> list[str]:
        """Nodes that are up, without the leader."""
        leader = await leader_of(group)
        return [node_id for node_id in group.up if node_id != leader]

    # -- refusals --------------------------------------------------------------------------

    async def test_only_the_leader_takes_appends_and_reads(self, group: LedgerGroup) -> None:
        """A node that does not lead refuses definitely, names the leader, and appends nothing
        later.
        """
        leader = await leader_of(group)
        await append(group, b"first")
        await level(group)
        for follower in await self.followers(group):
            for refused in (group.append(follower, b"refused"), group.read(follower)):
                await ended(group, refused)
                error = refused[0]
                assert isinstance(error, NotLeader)
                assert (error.leader, error.definite) == (leader, True)
        await group.stop(leader)
        await append(group, b"second")
        await level(group)
        assert [bodies_of(group, node_id) for node_id in group.up] == [[b"first", b"second"]] * 2

    async def test_more_appends_than_its_bound_are_refused(self, group: LedgerGroup) -> None:
        """Busy: definitely not appended, with a time after which to try again."""
        leader = await leader_of(group)
        with patch.object(limits, "APPENDS_PENDING_MAX", 3):
            outcomes = [group.append(leader, b"%d" % number) for number in range(5)]
        refused = outcomes[3:]
        for outcome in refused:
            assert isinstance(outcome[0], Busy)
            assert outcome[0].definite
            assert outcome[0].retry_after_s > 0
        await ended(group, *outcomes)
        assert bodies_of(group, leader) == [b"0", b"1", b"2"]

    async def test_without_a_majority_nothing_is_acknowledged_or_read(
        self, group: LedgerGroup
    ) -> None:
        """The outcome of an append is unknown, and said to be: it stands everywhere or nowhere. Of
        a read it is definite that nothing was read."""
        leader = await leader_of(group)
        await append(group, b"before")
        for follower in await self.followers(group):
            await group.stop(follower)
        unknown, read = group.append(leader, b"unknown"), group.read(leader)
        await ended(group, unknown, read)
        assert isinstance(unknown[0], OutcomeUnknown)
        assert not unknown[0].definite
        assert isinstance(read[0], NotLeader | NotConfirmed)
        assert read[0].definite
        await group.until(lambda: not group.serves(leader))
        assert isinstance(group.append(leader, b"refused")[0], NotLeader)
        for node_id in ("n0", "n1", "n2"):
            if node_id not in group.up:
                await group.start(node_id)
        await append(group, b"after")
        await level(group)
        assert_equal_logs(group)
        assert bodies_of(group, leader) in (
            [b"before", b"unknown", b"after"],
            [b"before", b"after"],
        )

    # -- nodes that come and go ------------------------------------------------------------

    async def test_a_leader_that_dies_takes_nothing_with_it(self, group: LedgerGroup) -> None:
        """The others go on, and have all that was acknowledged; when it comes back, so does it."""
        leader = await leader_of(group)
        await append(group, b"before")
        await group.stop(leader)
        (appended,) = await append(group, b"meanwhile")
        read = group.read(await leader_of(group))
        await ended(group, read)
        assert isinstance(read[0], int)
        assert read[0] >= appended.index
        await group.start(leader)
        await append(group, b"after")
        await level(group)
        assert_equal_logs(group)
        assert bodies_of(group, leader) == [b"before", b"meanwhile", b"after"]

    async def test_a_restart_of_all_keeps_everything(self, group: LedgerGroup) -> None:
        """A restart of all nodes keeps all entries, and later ones follow in a later term."""
        (before,) = await append(group, b"before")
        await level(group)
        node_ids = group.up
        for node_id in node_ids:
            await group.stop(node_id)
        for node_id in node_ids:
            await group.start(node_id)
        (after,) = await append(group, b"after")
        await level(group)
        assert_equal_logs(group)
        assert bodies_of(group, node_ids[0]) == [b"before", b"after"]
        assert after.term > before.term

    # -- leadership and members ------------------------------------------------------------

    async def test_leadership_goes_where_it_is_sent(self, group: LedgerGroup) -> None:
        """A transfer leaves earlier appends acknowledged, and the old leader names the new one."""
        leader, target = await leader_of(group), (await self.followers(group))[1]
        outcomes = [group.append(leader, b"%d" % number) for number in range(20)]
        done = group.transfer(leader, target)
        await group.until(lambda: bool(done) and group.serves(target))
        assert done == [target]
        await ended(group, *outcomes)
        assert all(isinstance(outcome[0], Appended) for outcome in outcomes)
        await append(group, b"after")
        await level(group)
        refused = group.append(leader, b"refused")[0]
        assert isinstance(refused, NotLeader)
        assert refused.leader == target

    async def test_a_transfer_to_a_node_that_is_gone_fails_and_appends_go_on(
        self, group: LedgerGroup
    ) -> None:
        """A transfer to a dead node fails with a reason, and the same leader serves on."""
        leader, target = await leader_of(group), (await self.followers(group))[0]
        await group.stop(target)
        failed = group.transfer(leader, target)
        await ended(group, failed)
        assert isinstance(failed[0], TransferFailed)
        await append(group, b"after")
        assert group.serves(leader)

    async def test_members_come_and_go(self, group: LedgerGroup) -> None:
        """An added node copies everything and votes; a removed one counts no more.

        So it is after a restart of all, too.
        """
        leader = await leader_of(group)
        await append(group, b"before")
        await changed(group, lambda: group.add(leader, "n3"))
        await group.start("n3")
        await group.until(lambda: group.voters(leader) == ["n0", "n1", "n2", "n3"])
        await level(group)
        assert_equal_logs(group)
        gone = next(node_id for node_id in ("n0", "n1", "n2") if node_id != leader)
        await changed(group, lambda: group.remove(leader, gone))
        await group.stop(gone)
        left = group.up
        for node_id in left:
            await group.stop(node_id)
        for node_id in left:
            await group.start(node_id)
        await append(group, b"after")
        await level(group)
        assert_equal_logs(group)
        assert all(group.voters(node_id) == left for node_id in left)
        assert bodies_of(group, "n3") == [b"before", b"after"]
