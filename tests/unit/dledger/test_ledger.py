"""The ledger's loops, over real files and a real port, which simulations leave out."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from dledger import Appended, Entry, Ledger, LedgerConfig, limits, open_ledger
from dledger.errors import LedgerClosed, PeerPortClosed, WrittenByNewer
from dledger.failpoints import SEAM
from dledger.ledger.opening import open_replica
from dledger.log.disk import Disk
from dledger.log.entry import Kind
from dledger.log.hard_state import HardStateFile
from dledger.log.recovery.repair import DamagedLog
from dledger.log.recovery.startup import open_log
from dledger.log.segments.segment import segment_path
from dledger.raft.membership.configuration import encode_members, initial
from dledger.raft.membership.members import open_members
from dledger.testing.local import KeepsNothing
from dledger.testing.logs import capture_logs
from dledger.testing.scripted.node import TERM_AT
from mqchaos.cluster.processes import free_ports

TURNS_PER_S_MAX = 20


async def test_a_ledger_tells_when_it_has_changed_and_when_it_is_fenced(tmp_path: Path) -> None:
    """A change and a fence wake their waiters, without polling."""
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path)
    machine = KeepsNothing()
    with trio.fail_after(30):
        async with open_ledger(config, machine) as ledger, trio.open_nursery() as nursery:
            await machine.led.wait()
            changed, reasons = trio.Event(), list[str]()

            async def wait_changed() -> None:
                await ledger.changed()
                changed.set()

            async def wait_fenced() -> None:
                reasons.append(str(await ledger.wait_fenced()))

            nursery.start_soon(wait_changed)
            nursery.start_soon(wait_fenced)
            await trio.testing.wait_all_tasks_blocked()
            assert not changed.is_set()
            done = await ledger.append(b"entry")
            assert isinstance(done, Appended)
            await changed.wait()
            assert not reasons
            ledger._stepper.fail(OSError(5, "the disk is gone"))
        assert ["the disk is gone" in reason for reason in reasons] == [True]
        assert ledger.status.fenced is not None


async def test_a_node_that_one_loop_fences_takes_no_step_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that was due at that moment would tell the state machine that this node leads."""
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path)
    machine, told = KeepsNothing(), list[str]()
    with trio.fail_after(30):
        async with open_ledger(config, machine) as ledger:
            await machine.led.wait()
            monkeypatch.setattr(machine, "leading", lambda term: told.append("leads"))
            monkeypatch.setattr(machine, "following", lambda leader, term: told.append("follows"))
            ledger._give_up(OSError(5, "the disk is gone"))
            ledger._stepper._step()
            assert told == ["follows"]


async def test_a_start_that_finds_rot_in_a_segment_that_it_trusted_reads_that_segment(
    tmp_path: Path,
) -> None:
    """A start that finds rot in a trusted segment reads it, and here refuses it as damaged."""
    peers = {
        node_id: ("127.0.0.1", port) for node_id, port in zip("ab", free_ports(2), strict=True)
    }
    config = LedgerConfig("g", "a", peers, tmp_path, segment_bytes=4096, repair=False)
    folder, disk = tmp_path / "log", Disk()
    log = open_log(folder, config.segment_bytes)[0]
    members = open_members(folder, disk, log, initial(peers))
    body = encode_members(initial({"a": peers["a"]}))
    members.append(1, 1, body)
    log.append(1, 1, Kind.CONFIGURATION, body)
    for index in range(2, 30):
        log.append(index, 1, Kind.MESSAGES, bytes(500))
    log.sync()
    log.commit_index = log.last_index
    log.close()
    with segment_path(folder, 0).open("r+b") as file:
        file.seek(TERM_AT)
        file.write(b"\2")
    with socket.create_server(peers["a"]) as listener, pytest.raises(DamagedLog, match="entry 1 "):
        await open_replica(config, HardStateFile(folder / "term", disk), listener)


async def test_who_waits_for_a_ledger_hears_that_it_was_closed(tmp_path: Path) -> None:
    """Waiters that outlive the ledger hear that it was closed, whatever they wait for."""
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path)

    async def wait(wait_for: Callable[[], Awaitable[object]]) -> None:
        with pytest.raises(LedgerClosed, match="n0 of g was closed"):
            await wait_for()

    with trio.fail_after(30):
        async with trio.open_nursery() as outer:
            async with open_ledger(config, KeepsNothing()) as ledger:
                never = ledger.status.last_index + 1000
                outer.start_soon(wait, ledger.changed)
                outer.start_soon(wait, lambda: ledger.wait_applied(never))
                outer.start_soon(wait, lambda: ledger.wait_durable(never))
            assert await ledger.wait_fenced() is None
        await wait(ledger.changed)
        await wait(lambda: ledger.wait_applied(never))


class Older(KeepsNothing):
    """A state machine of an older version, which knows no entry."""

    def apply(self, entry: Entry) -> object:
        """Refuse what a newer version wrote."""
        raise WrittenByNewer("an entry")


async def test_who_waits_for_a_fence_is_given_the_error_itself(tmp_path: Path) -> None:
    """Waiters for a fence get the error, whose type says what to do."""
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path)
    with trio.fail_after(30):
        async with open_ledger(config, Older()) as ledger:
            assert isinstance(await ledger.wait_fenced(), WrittenByNewer)


async def test_a_peer_port_that_is_taken_is_an_error_of_its_own(tmp_path: Path) -> None:
    """A taken peer port is an error of its own, which says which port to change."""
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path / "a")
    other = dataclasses.replace(config, directory=tmp_path / "b")
    async with open_ledger(config, KeepsNothing()):
        with pytest.raises(PeerPortClosed, match="Address already in use"):
            async with open_ledger(other, KeepsNothing()):
                pass


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    while not holds():  # noqa: ASYNC110
        await trio.sleep(0.01)


@asynccontextmanager
async def group(folder: Path) -> AsyncIterator[list[Ledger]]:
    """Three nodes in this process, that sync every tenth of a second; the leader first."""
    ports = free_ports(3)
    members = {f"n{number}": ("127.0.0.1", port) for number, port in enumerate(ports)}
    machines = [KeepsNothing() for _ in members]
    async with AsyncExitStack() as stack:
        ledgers = [
            await stack.enter_async_context(
                open_ledger(
                    LedgerConfig(
                        "g", name, members, folder / name, flush="interval", flush_interval_s=0.1
                    ),
                    machine,
                )
            )
            for name, machine in zip(members, machines, strict=True)
        ]
        await until(lambda: any(machine.led.is_set() for machine in machines))
        both = zip(ledgers, machines, strict=True)
        yield [ledger for ledger, _ in sorted(both, key=lambda pair: not pair[1].led.is_set())]


async def until_durable(ledgers: list[Ledger], index: int) -> None:
    await until(lambda: {ledger._log.durable_index for ledger in ledgers} == {index})


async def test_what_is_synced_now_and_then_is_synced_soon_after_on_every_node(
    tmp_path: Path,
) -> None:
    """Entries that are synced now and then are soon durable on every node, which then sleeps."""
    with trio.fail_after(30):
        async with group(tmp_path) as ledgers:
            for _ in range(3):
                done = await ledgers[0].append(b"entry")
                assert isinstance(done, Appended)
                await until_durable(ledgers, done.index)
                await trio.sleep(0.15)  # all of them sleep again


class Turns(trio.abc.Instrument):
    """Counts how often something woke the loop."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_a_group_that_has_nothing_to_do_sleeps_between_signs_of_life(tmp_path: Path) -> None:
    """An idle group wakes up for five heartbeats a second, and for their deadlines."""
    with trio.fail_after(30):
        async with group(tmp_path):
            await trio.sleep(1.2)
            turns = Turns()
            trio.lowlevel.add_instrument(turns)
            await trio.sleep(2)
            trio.lowlevel.remove_instrument(turns)
    print(f"{turns.count / 2} turns a second")
    assert turns.count / 2 <= TURNS_PER_S_MAX


async def test_a_replay_gets_one_step_in_a_turn_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message of a peer may be stepped for at once. In a replay that would be another slice of
    it, and syncs and heartbeats would wait for both."""
    turns = Turns()
    stepped_in: list[int] = []
    with trio.fail_after(30):
        async with group(tmp_path) as ledgers:
            leader, replica = ledgers[:2]
            for _ in range(200):
                done = await leader.append(b"entry")
                assert isinstance(done, Appended)
            await replica.wait_applied(done.index)
            machine, step = replica._machine, replica._stepper._step

            def slow(entry: Entry) -> object:
                time.sleep(0.001)
                return None

            def noted() -> None:
                if machine.applied_index < done.index:
                    stepped_in.append(turns.count)
                step()

            monkeypatch.setattr(machine, "apply", slow)
            monkeypatch.setattr(replica._stepper, "_step", noted)
            trio.lowlevel.add_instrument(turns)
            replica.derive_again(lambda: setattr(machine, "applied_index", 0))
            unapplied_bytes = replica.bytes_behind(replica.status.applied_index)
            while machine.applied_index < done.index:
                await leader.append(b"meanwhile")
            trio.lowlevel.remove_instrument(turns)
            await replica.wait_applied(leader.status.last_index)
            assert replica.bytes_behind(replica.status.applied_index) == 0
    assert unapplied_bytes > done.index * len(b"entry")
    in_one_turn = len(stepped_in) - len(set(stepped_in))
    print(f"{len(stepped_in)} steps, {in_one_turn} of them in the turn of another")
    assert len(stepped_in) >= 5
    assert in_one_turn <= 1  # the first may meet a message that came at the same time


async def test_a_slow_sync_is_logged_with_its_time_on_the_node_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow sync is logged on its node, so that a slow disk is told from a slow program."""
    monkeypatch.setattr(limits, "SLOW_SYNC_S", 0.3)
    slow_nodes = itertools.count()

    def first_is_slow(place: str) -> bool:
        if place == "log.durable" and next(slow_nodes) == 0:
            time.sleep(0.4)
        return False

    with capture_logs() as logs, trio.fail_after(30):
        async with group(tmp_path) as ledgers:
            await until_durable(ledgers, ledgers[0].status.last_index)
            monkeypatch.setattr(SEAM, "handler", first_is_slow)
            done = await ledgers[0].append(b"entry")
            assert isinstance(done, Appended)
            await until_durable(ledgers, done.index)
    slow = [line for line in logs if line["event"] == "slow sync"]
    assert [line["sync_s"] >= 0.4 for line in slow] == [True]
    assert slow[0]["node"] in {"n0", "n1", "n2"}
