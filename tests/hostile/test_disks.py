"""Disks that rot, fill up, or are used twice: noticed, reported, and mended without help."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio

from dledger import Entry, LedgerConfig, NotLeader, open_ledger
from dledger.errors import ConfigError, StorageError
from dledger.log.disk import Disk
from dledger.log.entry import HEADER_BYTES, Kind, decode_header
from dledger.log.replica import hold_replica, is_held
from dledger.net import Peer, connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.record import Record
from dledger.testing.logs import capture_logs
from dledger.testing.lossy import lossy_folder, why_not
from mqbroker import limits
from mqbroker.config import BrokerConfig
from mqbroker.state.derived import consume_queue
from mqbroker.testing.replicas import (
    SEGMENT_BYTES,
    everything,
    free_ports,
    group_info,
    leader_of,
    replicas,
    running,
)
from mqbroker.testing.requests import (
    GROUP,
    TIMEOUT_S,
    TOPIC,
    ask,
    commit,
    make_topic,
    produce_request,
    pull_request,
    records,
)
from mqbroker.upkeep import disk_space
from mqnamesrv.saved.kv_file import KvStore

MESSAGES = 1120
PATIENCE_S = 60.0
TRUSTED_S = 0.1
"""How long a replica trusts its memory before it looks at the disk again."""


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are made small, so that there are several of each kind."""
    monkeypatch.setattr(limits, "KEYS_PER_FILE", 1 << 9)
    monkeypatch.setattr(limits, "SNAPSHOT_INTERVAL_S", 0.2)
    monkeypatch.setattr("dledger.limits.CHECKPOINT_PERIOD_S", TRUSTED_S)


async def fill(peer: Peer, count: int, size_bytes: int = 40, key: str = "k") -> list[bytes]:
    """Make the topic and put messages into its queue 0; their bodies."""
    await make_topic(peer)
    bodies = []
    for start in range(0, count, 16):
        content = f"{start:06}".encode() * (size_bytes // 6)
        batch = min(16, count - start)
        answer = await peer.request(
            produce_request(f"{key}{start}", runs=((0, batch),), content=content), TIMEOUT_S
        )
        assert answer.code == ResponseCode.SUCCESS, answer
        bodies += [content] * batch
    return bodies


async def committed(group: list[BrokerConfig]) -> int:
    """The group's committed offset in queue 0."""
    leader = await leader_of(group)
    async with connect_peer("127.0.0.1", leader.listen_port) as peer:
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
        answer = await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **fields)
    return int(str(answer.ext["offset"]))


async def unknown_keys(group: list[BrokerConfig], keys: list[str]) -> list[str]:
    """The keys that no message is found by, as a tool is told that asks again when it is
    refused."""
    unknown = []
    leader = await leader_of(group)
    async with connect_peer("127.0.0.1", leader.listen_port) as peer:
        for key in keys:
            fields = {"topic": TOPIC, "key": key, "maxNum": 32}
            times = {"beginTimestamp": 0, "endTimestamp": 1 << 62}
            while True:
                answer = await ask(peer, RequestCode.QUERY_MESSAGE, **fields, **times)
                if answer.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                    break
                await trio.sleep(0.05)
            if answer.code != ResponseCode.SUCCESS:
                unknown.append(key)
    return unknown


def overwrite(path: Path, at: int, data: bytes) -> None:
    """Change bytes of a file, as a rotting disk does."""
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def queue_file(store: Path) -> Path:
    """The file of the topic's queue 0."""
    (path,) = store.glob(f"queues/{TOPIC}.*/0/*")
    return path


def sorted_keys(store: Path) -> Path:
    """The key index's first sorted file."""
    return min(store.glob("index/*.sorted"))


def newest_keys(store: Path) -> Path:
    """The key index's last file, which grows."""
    return max(store.glob("index/*"))


def snapshot(store: Path) -> Path:
    return store / "snapshot.msgpack"


AT_THE_START = "saved state not used"


def found_when_read(victim: Callable[[Path], Path]) -> str:
    """The event that reports damage within a file; a snapshot is read at the start."""
    return AT_THE_START if victim is snapshot else "files damaged"


@pytest.mark.parametrize("victim", [queue_file, sorted_keys, newest_keys, snapshot])
async def test_a_rotten_file_that_is_derived_from_the_log_is_made_again(
    victim: Callable[[Path], Path], tmp_path: Path
) -> None:
    """A derived file with 500 random bytes is made again, and no message or commit is lost."""
    rng = random.Random(7)
    group = replicas(tmp_path, 1)
    bodies = await fill_and_stop(group)
    path = victim(tmp_path / "n0")
    size = path.stat().st_size
    overwrite(path, max(size // 2 - 250, 0), rng.randbytes(min(500, size)))
    await assert_made_again(found_when_read(victim), group, bodies)


@pytest.mark.parametrize("victim", [queue_file, sorted_keys, newest_keys, snapshot])
async def test_a_file_derived_from_the_log_that_has_lost_its_end_is_made_again(
    victim: Callable[[Path], Path], tmp_path: Path
) -> None:
    """A derived file with half of its bytes is found at the start, and made again."""
    group = replicas(tmp_path, 1)
    bodies = await fill_and_stop(group)
    path = victim(tmp_path / "n0")
    os.truncate(path, path.stat().st_size // 2)
    await assert_made_again(AT_THE_START, group, bodies)


@pytest.mark.skipif(why_not() is not None, reason=f"no lossy disk here: {why_not()}")
@pytest.mark.parametrize("victim", [queue_file, sorted_keys, newest_keys, snapshot])
async def test_a_file_derived_from_the_log_that_the_disk_cant_read_is_made_again(
    victim: Callable[[Path], Path], tmp_path: Path
) -> None:
    """A derived file with an unreadable page, which would end the process, is made again."""
    group = replicas(tmp_path, 1)
    bodies = await fill_and_stop(group)
    with lossy_folder(tmp_path / "n0") as folder:
        path = victim(folder.path)
        folder.lose(path, path.stat().st_size // 2)
        await assert_made_again(found_when_read(victim), group, bodies)


@pytest.mark.skipif(why_not() is not None, reason=f"no lossy disk here: {why_not()}")
def test_a_disk_that_cant_read_a_page_says_when_a_file_was_written(tmp_path: Path) -> None:
    """A file on the lossy folder keeps its time, by which retention goes."""
    (held := tmp_path / "n0").mkdir()
    (held / "000.seg").write_bytes(b"entries")
    written_s = (held / "000.seg").stat().st_mtime
    with lossy_folder(held) as folder:
        assert (folder.path / "000.seg").stat().st_mtime == written_s


async def fill_and_stop(group: list[BrokerConfig]) -> list[bytes]:
    """Write messages and a committed offset to a group, and stop it; the bodies."""
    async with running(group):
        leader = await leader_of(group)
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            bodies = await fill(peer, MESSAGES)
            await commit(peer, 321)
    return bodies


async def assert_made_again(expected: str, group: list[BrokerConfig], bodies: list[bytes]) -> None:
    """Assert that no message is missing, and that the replica reported the damage."""
    with capture_logs() as lines:
        await read_all_and_send_on(group, bodies)
    assert expected in {line["event"] for line in lines}


async def read_all_and_send_on(group: list[BrokerConfig], bodies: list[bytes]) -> None:
    """Run a replica whose disk has rotted."""
    async with running(group):
        found = await everything(group, MESSAGES)
        assert [bytes(record.body) for record in found] == bodies
        keys = [f"k{start}-0-{number}" for start in range(0, MESSAGES, 16) for number in range(16)]
        assert await unknown_keys(group, keys[::5]) == []
        assert await committed(group) == 321
        async with connect_peer("127.0.0.1", group[0].listen_port) as peer:
            await fill(peer, 16, key="again")
        assert len(await everything(group, MESSAGES + 16)) == MESSAGES + 16


def segments(config: BrokerConfig) -> list[Path]:
    """The files of a replica's segments, in order."""
    return sorted(Path(config.store_path_root_dir).glob("log/*.seg"))


def rot_in_a_body(path: Path) -> int:
    """Flip a byte of a message's body in a segment, one that is on the disk for a while; the queue
    offset of that message."""
    raw = path.read_bytes()
    header = decode_header(raw)
    while header.kind != Kind.MESSAGES:
        header = decode_header(raw, header.end - int(path.stem))
    at = header.position - int(path.stem) + HEADER_BYTES
    record = Record(memoryview(raw)[at : at + header.body_length])
    body_at = raw.index(bytes(record.body), at)
    overwrite(path, body_at, bytes([raw[body_at] ^ 1]))
    return record.queue_offset


async def test_a_leader_never_serves_rotten_bytes_and_is_repaired(tmp_path: Path) -> None:
    """A leader with a rotten segment refuses the pull, another leads, and it is repaired.

    Every message is read as it was sent, from the repaired one, too.
    """
    group = replicas(tmp_path, 3)
    async with running(group):
        leader = await leader_of(group)
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            bodies = await fill(peer, 480, size_bytes=600)
            await trio.sleep(3 * TRUSTED_S)
            segment = segments(leader)[1]
            good = segment.read_bytes()
            offset = rot_in_a_body(segment)
            await peer.request(pull_request(0, 0), TIMEOUT_S)
            answer = await peer.request(pull_request(0, offset), TIMEOUT_S)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "damaged" in answer.remark
        found = await everything(group, len(bodies))
        assert [bytes(record.body) for record in found] == bodies
        with trio.fail_after(PATIENCE_S):
            while segment.read_bytes() != good:  # noqa: ASYNC110 -- the file says it
                await trio.sleep(0.05)
            await repaired(leader)
            await lead(leader, group)
        found = await everything([leader], len(bodies))
        assert [bytes(record.body) for record in found] == bodies


async def repaired(config: BrokerConfig) -> None:
    """Return when a replica takes part again."""
    while (  # noqa: ASYNC110 -- it is asked as an operator would
        (info := await group_info(config)) is None or info.fenced or info.role != "follower"
    ):
        await trio.sleep(0.05)


async def lead(config: BrokerConfig, group: list[BrokerConfig]) -> None:
    """Transfer the lead to this replica."""
    while (leader := await leader_of(group)) != config:
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            await ask(peer, RequestCode.TRANSFER_LEADER, nodeId=config.node_id)
        await trio.sleep(0.05)


async def test_a_replica_by_itself_refuses_what_has_rotted_and_serves_the_rest(
    tmp_path: Path,
) -> None:
    """A replica alone can't repair a rotten entry, refuses it, and serves all others."""
    group = replicas(tmp_path, 1)
    async with running(group):
        leader = await leader_of(group)
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            await fill(peer, 480, size_bytes=600)
            for segment in segments(leader)[:3]:
                await trio.sleep(3 * TRUSTED_S)
                offset = rot_in_a_body(segment)
                answer = await peer.request(pull_request(0, offset), TIMEOUT_S)
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert ".seg" in answer.remark
                answer = await peer.request(pull_request(0, offset + 16), TIMEOUT_S)
                assert records(answer)[0].queue_offset == offset + 16
            await fill(peer, 16, key="again")


class Counting:
    """A state machine that can be told to begin again."""

    def __init__(self) -> None:
        self.applied_index = 0
        self.told: list[str] = []

    def apply(self, entry: Entry) -> None:
        self.told.append(f"{entry.index}")

    def leading(self, term: int) -> None:
        self.told.append("leads")

    def following(self, leader: str | None, term: int) -> None:
        self.told.append("follows")


async def test_who_makes_again_what_it_derives_serves_nobody_meanwhile(tmp_path: Path) -> None:
    """A leader that derives its queues again serves nobody, as their ends are too low.

    So it is from the beginning until all is applied once more: it would give offsets away twice.
    """
    machine = Counting()
    (port,) = free_ports(1)
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", port)}, tmp_path)
    async with open_ledger(config, machine) as ledger:
        while ledger.status.role != "leader":  # noqa: ASYNC110 -- nothing to be woken by
            await trio.sleep(0.01)
        for _ in range(3):
            await ledger.append(b"x")
        machine.told.clear()

        def again() -> None:
            machine.applied_index = 2

        ledger.derive_again(again)
        assert machine.told == ["follows"]
        with pytest.raises(NotLeader):
            ledger.append_nowait(b"x", Kind.MESSAGES, lambda _: None)
        last_index = ledger.status.last_index
        await ledger.wait_applied(last_index)
        await trio.sleep(0.05)
        again_applied = [str(index) for index in range(3, last_index + 1)]
        assert machine.told == ["follows", *again_applied, "leads"]
        await ledger.append(b"x")


class FullDisk:
    """A real disk's errors while it is full: no blocks for a new file, nor for a longer one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full_below: set[Path] = set()
        create, write_all, write_snapshot = Disk.create, consume_queue._write_all, Disk.replace

        def refuse(path: Path) -> None:
            if any(folder in path.parents for folder in self.full_below):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        def creating(disk: Disk, path: Path, size_bytes: int) -> int:
            refuse(path)
            return create(disk, path, size_bytes)

        def replacing(disk: Disk, path: Path, *content: bytes) -> None:
            refuse(path)
            write_snapshot(disk, path, *content)

        def writing(descriptor: int, data: memoryview, at: int) -> None:
            refuse(Path(f"/proc/self/fd/{descriptor}").readlink())
            write_all(descriptor, data, at)

        monkeypatch.setattr(Disk, "create", creating)
        monkeypatch.setattr(Disk, "replace", replacing)
        monkeypatch.setattr(consume_queue, "_write_all", writing)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(monkeypatch)


async def fill_up(peer: Peer, key: str, batches_max: int = 500) -> tuple[int, Command]:
    """Send until it is refused: how many messages were taken, and the refusal."""
    for batch in range(batches_max):
        request = produce_request(f"{key}{batch}", runs=((0, 16),), content=b"x" * 600)
        answer = await peer.request(request, TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            return batch * 16, answer
    raise AssertionError("it took all")


async def test_on_a_full_disk_a_broker_takes_what_fits_and_serves_on(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    """A broker on a full disk takes what fits, then refuses with the reason and the place.

    It serves reads and commits, over a restart too; retention makes room, and it goes on.
    """
    group = replicas(tmp_path, 1)
    async with running(group):
        leader = await leader_of(group)
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            before = len(await fill(peer, 272, size_bytes=600))
            full_disk.full_below.add(tmp_path)
            taken, refusal = await fill_up(peer, "more")
            assert taken >= 16
            assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert str(tmp_path) in refusal.remark
            assert "no space left" in refusal.remark
            await commit(peer, 100)
    async with running(group):
        assert len(await everything(group, before + taken)) == before + taken
        assert await committed(group) == 100
        async with connect_peer("127.0.0.1", group[0].listen_port) as peer:
            assert (await fill_up(peer, "again"))[0] == 0
    small = [
        msgspec.structs.replace(
            config, commit_log_size_max=2 * SEGMENT_BYTES, clean_resource_interval=100
        )
        for config in group
    ]
    with capture_logs() as lines:
        async with running(small):
            await leader_of(small)
            held = len(segments(small[0]))
            with trio.fail_after(PATIENCE_S):
                # By an entry for which room was kept.
                await head_dropped(small[0])
                full_disk.full_below.clear()
                while len(segments(small[0])) >= held:  # noqa: ASYNC110 -- as an operator would
                    await trio.sleep(0.05)
                async with connect_peer("127.0.0.1", group[0].listen_port) as peer:
                    while (await fill_some(peer)).code:  # noqa: ASYNC110 -- as a producer would
                        await trio.sleep(0.05)
    events = [line["event"] for line in lines]
    assert "old segments removed" in events


async def head_dropped(config: BrokerConfig) -> None:
    """Return when the oldest messages are gone."""
    async with connect_peer("127.0.0.1", config.listen_port) as peer:
        while True:
            answer = await ask(peer, RequestCode.GET_MIN_OFFSET, topic=TOPIC, queueId=0)
            if int(str(answer.ext.get("offset", 0))) > 0:
                return
            await trio.sleep(0.05)


async def fill_some(peer: Peer) -> Command:
    """The answer to one more batch."""
    return await peer.request(produce_request("last", runs=((0, 16),)), TIMEOUT_S)


async def test_a_group_goes_on_without_the_follower_whose_disk_is_full(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    """A follower with a full disk stays alive, and has all entries when there is room again.

    No process ends, and nobody restarts one.
    """
    group = replicas(tmp_path, 3)
    async with running(group):
        leader = await leader_of(group)
        victim = next(config for config in group if config != leader)
        full_disk.full_below.add(Path(victim.store_path_root_dir))
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            bodies = await fill(peer, 960, size_bytes=600)
        assert await leader_of(group) == leader
        end, own = (await group_info(leader), await group_info(victim))
        assert end is not None
        assert own is not None
        assert (own.fenced, own.end_position < end.end_position) == (None, True)
        full_disk.full_below.clear()
        with trio.fail_after(PATIENCE_S):
            await level_with(victim, end.end_position)
            await lead(victim, group)
        found = await everything([victim], len(bodies))
        assert [bytes(record.body) for record in found] == bodies


async def other_leader(group: list[BrokerConfig], than: BrokerConfig) -> BrokerConfig:
    """The leader after `than`, as soon as there is one."""
    with trio.fail_after(PATIENCE_S):
        while (leader := await leader_of(group)) == than:  # noqa: ASYNC110 -- as a client would
            await trio.sleep(0.02)
    return leader


async def test_a_leader_whose_disk_is_full_lets_a_follower_lead_that_has_room(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    """A leader with a full disk hands over before it refuses a message for want of room.

    The group goes on, and the full one has all messages when there is room again.
    """
    group = replicas(tmp_path, 3)
    async with running(group):
        full = await leader_of(group)
        full_disk.full_below.add(Path(full.store_path_root_dir))
        async with connect_peer("127.0.0.1", full.listen_port) as peer:
            before, refusal = await fill_up(peer, "before")
        assert "no space left" not in refusal.remark
        leader = await other_leader(group, full)
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            after = len(await fill(peer, 960, size_bytes=600))
        full_disk.full_below.clear()
        end = await group_info(leader)
        assert end is not None
        with trio.fail_after(PATIENCE_S):
            await level_with(full, end.end_position)
        assert len(await everything(group, before + after)) == before + after


async def test_what_only_the_leader_has_room_for_is_refused_and_not_left_to_a_timeout(
    tmp_path: Path, full_disk: FullDisk
) -> None:
    """A send is refused definitely, with the followers' names, while both their disks are full.

    Entries other than messages are still stored, and messages are taken again once one has room.
    """
    group = replicas(tmp_path, 3)
    async with running(group):
        leader = await leader_of(group)
        followers = [config for config in group if config != leader]
        full_disk.full_below |= {Path(each.store_path_root_dir) for each in followers}
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            before, refusal = await fill_up(peer, "before")
            names = ", ".join(sorted(each.node_id for each in followers))
            assert refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert f"no space left on the disks of {names}" in refusal.remark
            assert "outcome" not in refusal.ext
            await commit(peer, before)
            assert await leader_of(group) == leader
            full_disk.full_below.remove(Path(followers[0].store_path_root_dir))
            with trio.fail_after(PATIENCE_S):
                while (await fill_some(peer)).code:  # noqa: ASYNC110 -- as a producer would
                    await trio.sleep(0.05)
        assert await committed(group) == before
        assert len(await everything(group, before + 16)) == before + 16


async def test_a_leader_above_the_watermark_lets_a_follower_lead_that_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader above the watermark hands over, and gets the lead back from nobody meanwhile."""
    full = set[str]()
    monkeypatch.setattr(
        disk_space, "used_percent", lambda path: 90.5 if str(path) in full else 50.0
    )
    monkeypatch.setattr(limits, "DISK_LOOK_S", 0.05)
    group = replicas(tmp_path, 3)
    async with running(group):
        first = await leader_of(group)
        full.add(str(first.store_path_root_dir))
        second = await other_leader(group, first)
        async with connect_peer("127.0.0.1", second.listen_port) as peer:
            await fill(peer, 160, size_bytes=600)
            asked = await ask(peer, RequestCode.TRANSFER_LEADER, nodeId=first.node_id)
        assert asked.code != ResponseCode.SUCCESS
        assert f"{first.node_id} declined: it has no room for messages" in asked.remark
        assert await leader_of(group) == second


async def level_with(config: BrokerConfig, end_position: int) -> None:
    """Return when a replica's log is that long."""
    while (  # noqa: ASYNC110 -- it is asked as an operator would
        (info := await group_info(config)) is None or info.end_position < end_position
    ):
        await trio.sleep(0.05)


async def test_above_a_watermark_no_messages_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above RocketMQ's diskSpaceWarningLevelRatio messages are refused, and taken again by itself.

    With cleanFileForciblyEnable the oldest segments go meanwhile.
    """
    used = [50.0]
    monkeypatch.setattr(disk_space, "used_percent", lambda path: used[0])
    monkeypatch.setattr(limits, "DISK_LOOK_S", 0.05)
    group = replicas(tmp_path, 1, clean_file_forcibly_enable=True, clean_resource_interval=100)
    async with running(group):
        leader = await leader_of(group)
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            await fill(peer, 480, size_bytes=600)
            used[0] = 90.5
            await trio.sleep(0.2)
            answer = await fill_some(peer)
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert str(tmp_path) in answer.remark
            await commit(peer, 7)
            with trio.fail_after(PATIENCE_S):
                await head_dropped(leader)
            used[0] = 90.0
            await trio.sleep(0.2)
            assert (await fill_some(peer)).code == ResponseCode.SUCCESS


async def test_a_change_of_the_key_value_config_costs_its_own_length(tmp_path: Path) -> None:
    """A change writes its own length, and not the table's 20,000 entries.

    A crash leaves what was acknowledged, wherever it tears the journal, and the journal is bounded.
    """
    path = tmp_path / "kvConfig.json"
    table = {"configTable": {"n": {f"key{number}": "v" * 50 for number in range(20_000)}}}
    path.write_text(json.dumps(table))
    store = KvStore(path)
    await store.put("n", "first", "1")
    written, journal = path.stat(), path.with_name("kvConfig.json.journal")
    for number in range(100):
        await store.put("n", f"new{number}", "w" * number)
        await store.delete("n", f"key{number}")
    assert path.stat().st_ino == written.st_ino
    assert journal.stat().st_size < 20_000
    assert KvStore(path).table == store.table
    raw = journal.read_bytes()
    for cut in range(len(raw) - 40, len(raw)):
        journal.write_bytes(raw[:cut])
        assert KvStore(path).table.count >= store.table.count
    journal.write_bytes(raw[:100] + b"?" + raw[101:])
    with pytest.raises(ConfigError, match=r"line \d of its journal"):
        KvStore(path)


async def test_the_journal_of_the_key_value_config_is_bounded(tmp_path: Path) -> None:
    """A journal longer than the table is replaced by a written table."""
    path = tmp_path / "kvConfig.json"
    store = KvStore(path)
    for number in range(200):
        await store.put("n", "same", f"{number}" * 300)
        journal = path.with_name("kvConfig.json.journal")
        assert not journal.exists() or journal.stat().st_size <= 1 << 16
    assert KvStore(path).table == store.table


def test_a_store_is_held_by_its_directories(tmp_path: Path) -> None:
    """A store is locked by its folders, whatever happens to files in them.

    A second process does not come in by another name of the same folder, either.
    """
    store = tmp_path / "store"
    with hold_replica(store, "g", "n0", 4096):
        for path in store.iterdir():
            if path.is_file():
                path.unlink()
        (tmp_path / "other").symlink_to(store)
        for folder in (store, tmp_path / "other"):
            with pytest.raises(StorageError, match="in use"), hold_replica(folder, "g", "n0", 4096):
                raise AssertionError("it was let in")
        store.rename(tmp_path / "moved")
        store.mkdir()
        (tmp_path / "moved" / "log").rename(store / "log")
        with pytest.raises(StorageError, match="in use"), hold_replica(store, "g", "n0", 4096):
            raise AssertionError("it was let in")
    with hold_replica(store, "g", "n0", 4096):
        assert is_held(store)
    assert not is_held(store)
