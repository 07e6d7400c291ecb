"""Packets of any content to every code: the group serves on, and its replicas agree.

The short form is a thousand cases: five hundred packets, five hundred entries. Millions: `python
tests/hostile/long_run.py --cases 1000000`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from replicas import Group, group
from strategies import (
    EPOCHS,
    HANDLES,
    POSITIONS,
    REQUESTS,
    control_bodies,
    frames,
    placed_records,
    placed_writes,
)
from trio.testing import MockClock

from dledger.errors import WrittenByNewer
from dledger.log.entry import HEADER_BYTES, Kind
from dledger.testing.logs import capture_logs
from mqbroker.requests.unsupported import not_supported
from mqbroker.testing.pictured import ends_of

PACKETS_PER_EXAMPLE = 5
#: A thousand stores come and go: not on a disk, where there is something better.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
PACKETS = st.lists(
    st.tuples(frames(), st.sampled_from([0.0, 0.0, 0.06, 1.2, 30.0])),
    min_size=PACKETS_PER_EXAMPLE,
    max_size=PACKETS_PER_EXAMPLE,
)
SHORT = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

MESSAGES = [Kind.MESSAGES, Kind.SENDS]

SECRET = "users need the secret of a cluster"  # noqa: S105


async def learn(directory: Path) -> None:
    """Note the places, handles and epochs that each group begins with."""
    async with group(directory, d_leger_secret=SECRET) as found:
        POSITIONS[:], HANDLES[:], EPOCHS[:] = await found.begin()


with tempfile.TemporaryDirectory(dir=MEMORY) as empty:
    trio.run(learn, Path(empty), clock=MockClock())


async def try_packets(found: Group, packets: list[tuple[bytes, float]]) -> None:
    """Send each over a connection of its own or the last one's, and look."""
    await found.begin()
    stranger = found.connect()
    for packet, pause_s in packets:
        if stranger.connection.closed:
            stranger = found.connect()
        await stranger.write(packet)
        await found.pass_time(pause_s)
        await found.serves(queues=1)
        found.agree()
    await found.pass_time(31)
    await found.serves()
    # One-way requests, too: what is kept for one is given back when it is answered.
    assert stranger.connection.closed or stranger.connection.unanswered == 0


async def try_entries(found: Group, draw_entry: st.DataObject, count: int) -> None:
    """Commit entries of any content; after each a leader begins anew, and the group serves."""
    await found.begin()
    for _ in range(count):
        ends = {
            (topic, queue_id): end
            for topic, (_, queues) in ends_of(found.machine.queues).items()
            for queue_id, end in queues.items()
        }
        position = found.ledger.status.end_position + HEADER_BYTES
        kind, body = draw_entry.draw(
            st.tuples(st.sampled_from(MESSAGES), placed_records(position, ends))
            | st.tuples(st.just(Kind.MESSAGES), placed_writes(position, ends))
            | st.tuples(st.just(Kind.CONTROL), control_bodies)
            | st.tuples(st.sampled_from([*MESSAGES, Kind.CONTROL]), st.binary(max_size=200))
        )
        try:
            found.commit_raw(kind, body)
        except WrittenByNewer:
            # A flipped bit can make the name of a queue that a later version may have. To set that
            # aside, where newer replicas apply it, would be worse than to stop; and no client can
            # write it (`test_a_move_out_of_a_queue_that_only_a_newer_version_has...`).
            return
        found.ledger.lead()
        await trio.testing.wait_all_tasks_blocked()
        await found.serves(queues=1)
        found.agree()
    await found.serves()


@SHORT
@given(PACKETS)
def test_no_packet_ends_a_group(packets: list[tuple[bytes, float]]) -> None:
    """A packet neither ends a group, nor makes replicas differ, nor meets an unexpected fault."""

    async def main() -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            async with group(Path(directory), d_leger_secret=SECRET) as found:
                await try_packets(found, packets)
                assert found.core.faults.count == 0, found.core.faults.last

    with capture_logs():
        trio.run(main, clock=MockClock())


@SHORT
@given(st.data())
def test_no_entry_ends_a_group(data: st.DataObject) -> None:
    """Whatever is committed is applied or set aside, by all replicas alike."""

    async def main() -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            async with group(Path(directory), d_leger_secret=SECRET) as found:
                await try_entries(found, data, PACKETS_PER_EXAMPLE)

    with capture_logs():
        trio.run(main, clock=MockClock())


async def test_every_code_that_a_broker_serves_is_tried(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """A code that is added must be added to the generator."""
    async with group(tmp_path, d_leger_secret=SECRET) as found:
        assert set(found.broker.handler.table) == set(REQUESTS)
        assert not_supported(12345).code == 3


@pytest.mark.parametrize("kind", [Kind.NOOP, Kind.CONFIGURATION])
async def test_what_belongs_to_raft_is_no_entry_of_the_brokers(
    tmp_path: Path, mock_clock: MockClock, kind: Kind
) -> None:
    """An entry of Raft is neither applied by the broker nor set aside."""
    async with group(tmp_path, d_leger_secret=SECRET) as found:
        found.commit_raw(kind, b"\xff" * 9)
        assert found.machine.aside.count == 0
        await found.serves()
        found.agree()
