"""Batches of rows on a real cluster are decided once, whole and in order; no other row is seen."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import trio

from dledger.limits import STAGED_ENDED_TOGETHER_MAX
from dledger.log.scanning.scan import scan_entries
from dledger.log.segments.segment import segment_path
from dledger.remoting.bodies.staged import Places, Staged
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import EndStagedHeader, EndTransactionHeader, encode_header
from dledger.trust.rights import PUB
from mqbroker import limits
from mqbroker.leader.staged import Ends, Entry
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.sending import staged as looks
from mqbroker.requests.sending.staged import StagedHandler
from mqbroker.state.decisions import GROUP
from mqclient import (
    BatchLost,
    Columns,
    Message,
    PopConsumer,
    Producer,
    ProducerFenced,
    RangeReader,
    ReceivedMessage,
    Refused,
    SendFailed,
    UnknownTarget,
)
from mqclient.bulk.deciding import BatchDecider
from mqclient.bulk.models import RecordsBatch
from mqclient.bulk.staging import StagedWriter
from mqclient.models import messages_in
from mqlocal import LocalCluster, local_cluster
from mqspark.judge.batches.faults import Faults, GroupLog
from mqspark.screening.changes import GroupsLogged
from mqspark.testing import planting

SEED = 20261127
KEYS = 5
SOON_S = 12
"""Leaders look every 3 s at what is older than 6 s."""


class Died(Exception):
    """The death of a driver."""


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], Core]:
    """The brokers' parts, by group and node; the newest, if a node was restarted."""
    found: dict[tuple[str, str], Core] = {}
    begin = StagedHandler.__init__

    def noted(entries: StagedHandler, core: Core, *others: object) -> None:
        found[core.config.broker_name, core.config.node_id] = core
        begin(entries, core, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(StagedHandler, "__init__", noted)
    monkeypatch.setattr(limits, "STAGED_KEPT_S", 12.0)  # virtual time costs some, too
    return found


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with local_cluster(groups=2, replicas=1) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=2, write_queues=2)
        yield cluster


async def begin(cluster: LocalCluster, batch: int, run: str = "run", name: str = "q") -> Staged:
    """Begin a batch, as a task does."""
    async with BatchDecider(cluster.namesrv_addr) as decider:
        return await decider.begin(name, run, batch)


async def stage(
    cluster: LocalCluster, staged: Staged, rows: Sequence[int], size: int = 10
) -> Places:
    """An attempt of a task: its rows are staged, some at a time."""
    async with StagedWriter(cluster.namesrv_addr, staged) as writer:
        for at in range(0, len(rows), size):
            some = rows[at : at + size]
            bodies = [b"%d" % row for row in some]
            await writer.write("T", Columns(bodies, [f"k{row % KEYS}" for row in some]))
        await writer.flush()
        return writer.places


def together(*attempts: Places) -> Places:
    """The attempts that count, by partition."""
    places: dict[str, list[tuple[int, int]]] = {}
    for each in attempts:
        for group, found in each.items():
            places.setdefault(group, []).extend(found)
    return places


async def commit(
    cluster: LocalCluster, staged: Staged, places: Places, *, dies_after: int | None = None
) -> bool:
    """Commit a batch, as a driver does; it may die after some entries are messages."""
    ended = 0
    publish = BatchDecider._publish

    async def dying(decider: BatchDecider, group: str, places: list[tuple[int, int]]) -> None:
        nonlocal ended
        if dies_after is None:
            await publish(decider, group, places)
            return
        for place in places:
            if ended == dies_after:
                raise Died
            ended += 1
            await publish(decider, group, [place])

    with patch.object(BatchDecider, "_publish", dying):
        async with BatchDecider(cluster.namesrv_addr) as decider:
            return await decider.commit(staged, places)


async def seen(cluster: LocalCluster, topic: str = "T") -> dict[str, list[int]]:
    """The rows that a reader is given, by key; each key is in one queue."""
    found: dict[str, list[int]] = {}
    homes: dict[str, set[object]] = {}
    async with RangeReader(cluster.namesrv_addr) as reader:
        for queue, bounds in (await reader.bounds(topic)).queues.items():
            at = bounds.begin
            while at < bounds.end:
                piece = await reader.read(queue, at, bounds.end)
                at = piece.next_offset
                for message in messages_in(bytes(piece.table.buffer), "") if piece.table else ():
                    found.setdefault(message.keys, []).append(int(message.body))
                    homes.setdefault(message.keys, set()).add(queue)
    assert all(len(queues) == 1 for queues in homes.values())
    return found


def by_key(*batches: Sequence[int]) -> dict[str, list[int]]:
    """The rows to be seen of these batches, by key."""
    rows = [row for batch in batches for row in batch]
    found = {f"k{key}": [row for row in rows if row % KEYS == key] for key in range(KEYS)}
    return {key: rows for key, rows in found.items() if rows}


def waiting(cores: dict[tuple[str, str], Core]) -> int:
    """The number of half messages that no move has taken, staged entries among them."""
    leading: dict[str, Core] = {}
    for (group, _), core in cores.items():
        if core.role.serving and (
            group not in leading or core.role.term > leading[group].role.term
        ):
            leading[group] = core
    return sum(len(core.machine.halves) for core in leading.values())


async def test_rows_are_seen_when_their_batch_is_committed(cluster: LocalCluster) -> None:
    """A committed batch's rows are seen in both groups, in their keys' order, and not before."""
    for batch in range(3):
        staged = await begin(cluster, batch)
        rows = range(batch * 100, batch * 100 + 100)
        first, second = rows[:60], rows[60:]
        places = [await stage(cluster, staged, part) for part in (first, second)]
        assert {*together(*places)} == {*cluster.groups}
        assert await seen(cluster) == by_key(range(batch * 100))
        assert await commit(cluster, staged, together(*places))
        assert await seen(cluster) == by_key(range(batch * 100 + 100))


async def test_what_a_commit_costs(
    cluster: LocalCluster, cores: dict[tuple[str, str], Core]
) -> None:
    """A commit of `n` staged entries costs one entry for the decision and `n` others.

    It costs as many requests, and a question for what is decided (docs/explanation/spark-sink.md).
    """
    asked = Counter[RequestCode]()
    ask = BatchDecider._ask

    async def counted(
        decider: BatchDecider, group: str, code: RequestCode, *others: object
    ) -> Command:
        asked[code] += 1
        return await ask(decider, group, code, *others)  # type: ignore[arg-type]

    def entries() -> int:
        return sum(core.machine.applied_index for core in cores.values())

    for batch in range(2):
        staged = await begin(cluster, batch)
        places = await stage(cluster, staged, range(batch * 60, batch * 60 + 60))
        n, before = sum(map(len, places.values())), entries()
        asked.clear()
        with patch.object(BatchDecider, "_ask", counted):
            assert await commit(cluster, staged, places)
        assert n > 2
        assert entries() - before == 1 + n
        assert asked == {
            RequestCode.DECISION_OF: 1,
            RequestCode.WRITE_ONCE: 1,
            RequestCode.END_STAGED: len(places),
        }


async def test_no_reader_is_given_what_is_not_decided(cluster: LocalCluster) -> None:
    """No request gives a reader undecided rows: pulls, pops, keys, ends of queues."""
    staged = await begin(cluster, 0)
    places = await stage(cluster, staged, range(20))
    async with (
        cluster.admin() as admin,
        PopConsumer(cluster.namesrv_addr, "G", {"T": "*"}) as popping,
    ):
        for rows in (0, 20):
            assert sum(map(len, (await seen(cluster)).values())) == rows
            by_its_key = list[ReceivedMessage]()
            with suppress(UnknownTarget):
                by_its_key += await admin.messages.by_key("T", "k3")
            assert len(by_its_key) == rows // KEYS
            async with RangeReader(cluster.namesrv_addr) as reader:
                queues = (await reader.bounds("T")).queues
            assert sum(bounds.end for bounds in queues.values()) == rows
            popped = list[bytes]()
            with trio.move_on_after(5):
                while len(popped) < 21:
                    for message in await popping.poll(20):
                        popped.append(message.body)
                        await popping.ack(message)
            assert len(popped) == rows
            if not rows:
                assert await commit(cluster, staged, places)


async def test_a_name_that_is_closed_is_forgotten(
    cluster: LocalCluster, cores: dict[tuple[str, str], Core]
) -> None:
    """A closed name leaves nothing behind, and may be closed again."""
    staged = await begin(cluster, 0)
    assert await commit(cluster, staged, await stage(cluster, staged, range(20)))
    async with BatchDecider(cluster.namesrv_addr) as decider:
        for _ in range(2):
            await decider.close_name(staged)
    for core in cores.values():
        assert (len(core.machine.decisions), len(core.machine.producers)) == (0, 0)
    assert await seen(cluster) == by_key(range(20))


async def test_records_are_checked_when_they_are_staged(cluster: LocalCluster) -> None:
    """Records are checked on staging, as by PRODUCE, so that they can become messages later."""
    staged = await begin(cluster, 0)
    cut = StagedWriter._request

    def spoilt(writer: StagedWriter, batch: RecordsBatch) -> Command:
        command = cut(writer, batch)
        return Command(command.code, command.ext, bytes(command.payload)[:-1] + b"\0\0")

    with patch.object(StagedWriter, "_request", spoilt), pytest.raises(SendFailed, match="code 13"):
        await stage(cluster, staged, range(20))
    for wrong in (staged._replace(home="a b"), staged._replace(epoch=-1)):
        with pytest.raises(SendFailed, match="code 29"):
            await stage(cluster, wrong, range(20))
    with pytest.raises(SendFailed, match="the topic"):
        async with StagedWriter(cluster.namesrv_addr, staged) as writer:
            await writer.write("RMQ_SYS_TRANS_HALF_TOPIC", Columns([b"x"]))


async def checker(message: object) -> None:
    """Decide nothing: no message gets this far."""


async def test_a_user_is_no_sink(cluster: LocalCluster) -> None:
    """A half message for a staged entry's group is refused."""
    async with Producer(cluster.namesrv_addr, GROUP + "q", checker=checker) as producer:
        with pytest.raises(SendFailed, match="must not begin with"):
            async with producer.transaction(Message("T", b"x")):
                raise AssertionError("it was sent")


async def test_a_batch_gets_whole_without_its_driver(cluster: LocalCluster) -> None:
    """A decided batch is completed after its driver's death, at any of its entries."""
    for batch, dies_after in enumerate((0, 1, 3)):
        staged = await begin(cluster, batch)
        rows = range(batch * 50, batch * 50 + 50)
        places = await stage(cluster, staged, rows)
        with pytest.raises(Died):
            await commit(cluster, staged, places, dies_after=dies_after)
        await trio.sleep(SOON_S)
        assert await seen(cluster) == by_key(range(batch * 50 + 50))
        assert not await commit(cluster, staged, {})


async def test_what_nobody_decides_is_dropped(
    cluster: LocalCluster, cores: dict[tuple[str, str], Core]
) -> None:
    """An undecided batch is dropped after a while, and can't be decided any more."""
    staged = await begin(cluster, 0)
    places = await stage(cluster, staged, range(40))
    await trio.sleep(limits.STAGED_KEPT_S / 2)
    assert waiting(cores) == sum(map(len, places.values()))
    await trio.sleep(limits.STAGED_KEPT_S / 2 + SOON_S)
    assert waiting(cores) == 0
    with pytest.raises(ProducerFenced):
        await commit(cluster, staged, places)
    with pytest.raises(ProducerFenced):
        await begin(cluster, 0)
    again = await begin(cluster, 0, "restarted")
    assert await commit(cluster, again, await stage(cluster, again, range(40)))
    assert await seen(cluster) == by_key(range(40))


async def test_attempts_that_lost_are_dropped_soon(
    cluster: LocalCluster, cores: dict[tuple[str, str], Core]
) -> None:
    """Staged entries of attempts that lost, and late ones, are dropped soon."""
    staged = await begin(cluster, 0)
    await stage(cluster, staged, range(20))
    assert await commit(cluster, staged, await stage(cluster, staged, range(20)))
    await stage(cluster, staged, range(20))
    staged = await begin(cluster, 1)
    assert await commit(cluster, staged, await stage(cluster, staged, range(20, 40)))
    assert waiting(cores) > 0
    await trio.sleep(SOON_S)
    assert waiting(cores) == 0
    assert await seen(cluster) == by_key(range(40))


async def test_a_name_that_is_not_known_begins_with_its_first_batch(cluster: LocalCluster) -> None:
    """A batch of an unknown name is an error that says so, unless it is named as the first."""
    staged = await begin(cluster, 7)
    places = await stage(cluster, staged, range(20))
    with pytest.raises(BatchLost, match="firstBatch=7"):
        await commit(cluster, staged, places)
    async with BatchDecider(cluster.namesrv_addr) as decider:
        assert await decider.commit(staged, places, first_batch=7)
    assert await seen(cluster) == by_key(range(20))


async def test_a_topic_that_has_fewer_queues_by_then_gets_all_rows(
    cluster: LocalCluster, cores: dict[tuple[str, str], Core]
) -> None:
    """A decided batch gets whole; one whose topic is gone says so."""
    staged = await begin(cluster, 0)
    places = await stage(cluster, staged, range(40))
    gone = await begin(cluster, 1)
    also = await stage(cluster, gone, range(40, 80))
    async with cluster.admin() as admin:
        await admin.topics.update("T", read_queues=1, write_queues=1)
        assert await commit(cluster, staged, places)
        found = await seen(cluster)
        assert Counter(row for rows in found.values() for row in rows) == Counter(range(40))
        await admin.topics.delete("T")
    with pytest.raises(Refused, match="the topic of the transaction is deleted"):
        await commit(cluster, gone, also)
    await trio.sleep(SOON_S)
    assert waiting(cores) == 0


async def test_a_stock_end_of_a_staged_entry_is_refused(cluster: LocalCluster) -> None:
    """A stock client can neither end a staged entry nor read its queue."""
    staged = await begin(cluster, 0)
    places = await stage(cluster, staged, range(20))
    assert await seen(cluster, "T") == {}
    ((group, [(offset, position), *_]), *_) = places.items()
    header = EndTransactionHeader(
        producer_group=GROUP + staged.name,
        tran_state_table_offset=offset,
        commit_log_offset=position,
        commit_or_rollback=8,
    )
    command = Command(RequestCode.END_TRANSACTION, encode_header(header))
    async with BatchDecider(cluster.namesrv_addr) as decider:
        await decider._learn()
        answer = await decider._requests.leaders.ask(group, command, 5.0)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert await seen(cluster, "T") == {}


async def test_the_first_that_can_not_be_ended_keeps_those_behind_it(
    cluster: LocalCluster, cores: dict[tuple[str, str], Core]
) -> None:
    """The order of the decision stays; and a request has a bound."""
    staged = await begin(cluster, 0)
    places = await stage(cluster, staged, range(120))
    ((group, [first, second, third, *_]), *_) = places.items()

    async def end(*ended: tuple[int, int]) -> Command:
        header = EndStagedHeader(*ended[0], [*ended[1:]])
        command = Command(RequestCode.END_STAGED, encode_header(header))
        async with BatchDecider(cluster.namesrv_addr) as decider:
            await decider._learn()
            return await decider._requests.leaders.ask(group, command, 5.0)

    halves = next(each for (name, _), each in cores.items() if name == group).machine.halves
    answer = await end(first, (second[0], second[1] + 1), third)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "is not what was staged" in (answer.remark or "")
    assert [place[0] in halves for place in (first, second, third)] == [False, True, True]
    answer = await end(*[second] * (STAGED_ENDED_TOGETHER_MAX + 1))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert second[0] in halves
    assert (await end(first, second, third)).code == ResponseCode.SUCCESS
    assert [place[0] in halves for place in (first, second, third)] == [False] * 3


def test_whoever_ends_staged_entries_needs_the_right_to_the_topic_of_each() -> None:
    """Staged entries that end together may be of several topics."""
    topics = {10: "A", 20: "B", 30: "C"}
    request = Command(
        RequestCode.END_STAGED, encode_header(EndStagedHeader(1, 10, [(2, 20), (3, 30)]))
    )
    needs = rights.ENDED_STAGED.needs(request, SimpleNamespace(topic_at=topics.get))  # type: ignore[arg-type]
    assert [(need.name, need.actions) for (need,) in needs] == [(topic, (PUB,)) for topic in "ABC"]


def log_of(cluster: LocalCluster, group: str) -> GroupLog:
    """The audit's findings in the logs of a broker group."""
    found, ends = GroupsLogged(), []
    configs = [each for each in cluster._layout.brokers.values() if each.broker_name == group]
    for replica in planting.replicas_of([Path(each.store_path_root_dir) for each in configs]):
        for base in replica.segments:
            raw = memoryview(segment_path(Path(replica.directory) / "log", base).read_bytes())
            for entry in scan_entries(raw, base, replica.segment_bytes, None, verify=False):
                if entry.header is not None:
                    found.take(entry.header, raw, entry.offset, base)
                    end = base + entry.offset + entry.size
        ends.append(end)
    return GroupLog(group, found.batches, 0, min(ends), is_final=True)


async def test_the_audit_finds_a_leader_that_drops_what_counts(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver died after the decision, and leaders take all that waits for lost attempts."""

    def all_lost(entries: Sequence[Entry], *_: object) -> Ends:
        return Ends([], [each.offset for each in entries], [], [])

    monkeypatch.setattr(looks, "ends_of", all_lost)
    staged = await begin(cluster, 0)
    with pytest.raises(Died):
        await commit(cluster, staged, await stage(cluster, staged, range(50)), dies_after=0)
    await trio.sleep(SOON_S)
    for server in cluster.servers:
        await cluster.stop(server)
    found = Faults([log_of(cluster, group) for group in cluster.groups]).found
    assert {fault.what for fault in found} == {"dropped"}


@pytest.mark.parametrize("seed", range(SEED, SEED + 3))
async def test_whatever_dies_each_batch_is_there_once(
    cores: dict[tuple[str, str], Core], seed: int
) -> None:
    """Tasks run twice, drivers die at any step and come back as another run, leaders die, time
    passes: rows of committed batches are there once, by key in order, and no others. The audit
    finds nothing in the logs."""
    rng = random.Random(seed)
    async with local_cluster(groups=2, replicas=3) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("T", read_queues=2, write_queues=2)
        batch, run, killed = 0, 0, None
        while batch < 4:
            rows = range(batch * 60, batch * 60 + 60)
            try:
                staged = await begin(cluster, batch, f"run{run}")
            except ProducerFenced:
                run += 1
                continue
            if killed is not None:
                await cluster.restart(killed)
                killed = None
            if rng.random() < 0.4:
                killed = await cluster.kill(await cluster.leader(rng.choice(cluster.groups)))
            cut = rng.randrange(61)
            attempts = []
            for part in (rows[:cut], rows[cut:]):
                tries = [
                    await stage(cluster, staged, part, rng.randrange(1, 30))
                    for _ in range(rng.choice((1, 1, 2)))
                ]
                attempts.append(rng.choice(tries))
            fate = rng.choice(("well", "well", "before", "within", "after", "late"))
            if fate in ("before", "late"):
                await trio.sleep(limits.STAGED_KEPT_S + SOON_S if fate == "late" else 0)
                run += 1
                continue
            try:
                dies_after = rng.randrange(4) if fate == "within" else None
                await commit(cluster, staged, together(*attempts), dies_after=dies_after)
            except Died:
                run += 1
                await trio.sleep(rng.choice((0, SOON_S)))
                continue
            if fate == "after":
                run += 1
                continue
            batch += 1
        if killed is not None:
            await cluster.restart(killed)
        await trio.sleep(SOON_S)
        assert await seen(cluster) == by_key(range(240))
        await trio.sleep(limits.STAGED_KEPT_S + SOON_S)
        assert waiting(cores) == 0
        assert await seen(cluster) == by_key(range(240))
        for server in cluster.servers:
            await cluster.stop(server)
        audited = Faults([log_of(cluster, group) for group in cluster.groups])
    assert audited.found == []
    assert audited.checked > 20
