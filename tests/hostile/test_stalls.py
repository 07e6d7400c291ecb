"""Costs of strangers to the loop: heavy requests, many at once, filters, heartbeats, topics.

Time is the test's own where it can be: a handler that costs 2 ms sets the clock forward by that.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.limits import CLIENT_BODY_BYTES_MAX, LOOP_STALL_S, LOOP_TURN_MAX_S, LOOP_TURN_S
from dledger.net import Connection, Handler, connect_peer, serve_remoting
from dledger.net import turns as turns_module
from dledger.net.turns import Queue, Share, Turns, in_turns, turns_of_loop
from dledger.net.watchdog import Watchdog, watched_loop
from dledger.remoting.bodies import HeartbeatData, decode_body
from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.framing import FrameDecoder
from dledger.remoting.record.encode import encode_record
from dledger.slices import drained
from dledger.testing.logs import capture_logs
from mqbroker import limits
from mqbroker.refusal import Refused
from mqbroker.requests import filters
from mqbroker.requests.filters import parse_subscription, selection
from mqbroker.requests.held_pulls import HeldPull, HeldPulls
from mqbroker.requests.reading.queue_reading import Found, read_queue
from mqbroker.sql import parse_condition
from mqbroker.state.derived import consume_queue
from mqbroker.state.derived.consume_queue import ConsumeQueue, ConsumeQueues
from mqbroker.state.derived.file_pool import FilePool
from mqbroker.state.derived.units import UNIT, UNIT_BYTES
from mqbroker.testing.memory import served
from mqbroker.testing.pictured import ends_of
from mqbroker.testing.requests import TOPIC, ask, make_topic, records, send_request

CHEAP, DEAR, SLOW = 1, 2, 3
A_UNIT = np.array([(1, 1, 0, 0, 1, 1)], UNIT).tobytes()
DEAR_S, CHEAP_S = 0.002, 0.0001


class Clock:
    """A clock that goes when a test moves it."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Answering(Handler):
    """Takes as long as a request's code says, by the test's clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.handled: list[tuple[int, float]] = []

    def __call__(self, request: Command, connection: Connection) -> Command:
        self.clock.now_s += DEAR_S if request.code == DEAR else CHEAP_S
        self.handled.append((request.code, self.clock.now_s))
        if request.code == SLOW:
            time.sleep(LOOP_STALL_S * 1.5)
        return request.reply(0)


# -- turns -------------------------------------------------------------------------------------


def share(cost_s: float) -> Share:
    made = Share()
    made.spent(cost_s)
    return made


def test_the_cheap_go_first_and_nobody_starves() -> None:
    """Cheap clients go first, and a dear one that waits is let go within a few turns."""
    queue, went = Queue(), list[str]()
    queue.put(share(1.0), lambda: went.append("dear"))
    for _ in range(100):
        queue.put(share(0.0001), lambda: went.append("cheap"))
    queue.admit()
    assert went[:3] == ["cheap"] * 3
    assert went[3] == "dear"


@pytest.mark.parametrize("others_s", [CHEAP_S, LOOP_TURN_S / 3, LOOP_TURN_S, 5.0])
def test_the_oldest_goes_however_few_a_turn_admits(others_s: float) -> None:
    """The oldest client goes every fourth time over all turns, and stays the oldest in vain."""
    queue, went = Queue(), list[int]()

    def come_again(number: int) -> None:
        went.append(number)
        queue.put(share(others_s), partial(come_again, number))

    for number in range(1, 41):
        queue.put(share(others_s), partial(come_again, number))
    waits = queue.put(share(6.0), lambda: went.append(0))
    while 0 not in went:
        queue.admit()
    assert len(went) <= 4 * 42
    went.clear()
    assert queue.put(share(6.0), lambda: went.append(0), waits) == waits
    while 0 not in went:
        queue.admit()
    assert len(went) <= 4 + LOOP_TURN_S / CHEAP_S


def test_a_queue_forgets_who_has_gone() -> None:
    """A queue forgets the clients that have left, from either end, though it is never empty."""
    queue, rng = Queue(), random.Random(1)
    for _ in range(5_000):
        for _ in range(rng.randrange(3)):
            queue.put(share(rng.choice((CHEAP_S, 1.0, 5.0))), lambda: None)
        if len(queue) > 5:
            queue.admit()
    sizes = [len(each) for each in vars(queue).values() if isinstance(each, list)]
    assert sizes
    assert max(sizes) < 1000


def test_a_turn_takes_what_it_has_time_for_and_one_at_least() -> None:
    """A turn takes many cheap requests, or one dear one."""
    queue, went = Queue(), list[int]()
    for number in range(3):
        queue.put(share(5.0), partial(went.append, number))
    queue.admit()
    assert went == [0]
    queue = Queue()
    for number in range(1000):
        queue.put(share(LOOP_TURN_S / 10), partial(went.append, number))
    queue.admit()
    assert 10 <= len(went) - 1 <= 12


def test_one_late_turn_does_not_make_a_client_dear_for_long() -> None:
    """A single late turn makes no client dear for long; a newcomer is not known as cheap."""
    assert not Share().cheap
    bystander = share(CHEAP_S)
    for _ in range(20):
        bystander.spent(CHEAP_S)
    bystander.spent(0.02)
    late = 0
    while not bystander.cheap:
        bystander.spent(CHEAP_S)
        late += 1
    assert late < 10


def test_a_busy_machine_makes_no_client_dear() -> None:
    """A busy machine makes no cheap client dear; one with dear requests alone is known soon."""
    rng, bystander, stranger = random.Random(1), share(CHEAP_S), share(CHEAP_S)
    cheap = 0
    for _ in range(1000):
        bystander.spent(0.02 if rng.random() < 0.2 else CHEAP_S)
        cheap += bystander.cheap
    assert cheap > 950
    turns = 0
    while stranger.cheap:
        stranger.spent(DEAR_S)
        turns += 1
    assert turns < 10


async def test_a_bystander_hardly_waits_behind_four_hundred_heavy_clients() -> None:
    """A client waits little behind four hundred heavy ones, whose requests need 0.8 s together."""
    clock = Clock()
    handler, turns = Answering(clock), Turns(clock)
    trio.lowlevel.add_instrument(turns)
    turns_module._turns.set(turns)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_remoting, handler, "127.0.0.1", 0)
        heavy = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(400)]
        async with connect_peer("127.0.0.1", port) as bystander:
            for _ in range(10):
                await bystander.request(Command(CHEAP), 30)
            request = b"".join(encode_frame(Command(DEAR)))
            worst_s = 0.0
            for stream in heavy:
                await stream.send_all(request * 3)
            while sum(code == DEAR for code, _ in handler.handled) < 1000:
                asked_s = clock.now_s
                await bystander.request(Command(CHEAP), 30)
                worst_s = max(worst_s, clock.now_s - asked_s)
        for stream in heavy:
            await stream.aclose()
        nursery.cancel_scope.cancel()
    assert worst_s < 0.1


async def test_many_requests_in_one_chunk_are_no_single_turn() -> None:
    """A connection that sends hundreds of requests at once lets others in between."""
    clock = Clock()
    handler, turns = Answering(clock), Turns(clock)
    trio.lowlevel.add_instrument(turns)
    turns_module._turns.set(turns)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_remoting, handler, "127.0.0.1", 0)
        async with (
            await trio.open_tcp_stream("127.0.0.1", port) as heavy,
            connect_peer("127.0.0.1", port) as bystander,
        ):
            await bystander.request(Command(CHEAP), 30)
            await heavy.send_all(b"".join(encode_frame(Command(DEAR))) * 500)
            await bystander.request(Command(CHEAP), 30)
            before = [code for code, _ in handler.handled].index(CHEAP, 1)
            assert before * DEAR_S < 0.1
        nursery.cancel_scope.cancel()


async def test_answers_that_come_all_at_once_are_given_in_slices() -> None:
    """Four hundred readers that one message wakes are answered in several turns."""
    clock = Clock()
    trio.lowlevel.add_instrument(turns := Turns(clock))
    turns_module._turns.set(turns)
    longest_s, began_s = 0.0, clock.now_s

    def steps() -> Iterator[None]:
        for _ in range(400):
            clock.now_s += DEAR_S
            yield

    async with trio.open_nursery() as nursery:

        async def others() -> None:
            nonlocal longest_s, began_s
            while True:
                await trio.lowlevel.checkpoint()
                longest_s = max(longest_s, clock.now_s - began_s)
                began_s = clock.now_s

        nursery.start_soon(others)
        await in_turns(steps())
        nursery.cancel_scope.cancel()
    assert clock.now_s == pytest.approx(100.8)
    assert longest_s <= LOOP_TURN_MAX_S


async def test_a_loop_has_one_budget() -> None:
    """All servers on a loop share one budget."""
    assert turns_of_loop() is turns_of_loop()


# -- the watchdog ------------------------------------------------------------------------------


def test_a_long_turn_is_a_line_with_what_ran() -> None:
    """A long turn is logged with what ran, or its length alone; short ones are not."""
    clock = Clock()
    watchdog = Watchdog(clock)
    with capture_logs() as logs:
        for looked, took_s in ((True, 0.3), (False, 0.2), (True, 0.09)):
            watchdog.after_io_wait(0.0)
            clock.now_s += took_s
            if looked:
                watchdog.look()
            watchdog.before_io_wait(0.0)
            clock.now_s += 10
            watchdog.look()
    assert [line["stall_s"] for line in logs] == [0.3, 0.2]
    assert "test_a_long_turn_is_a_line_with_what_ran" in logs[0]["ran"]
    assert "held the interpreter" in logs[1]["ran"]
    assert (watchdog.stalls, round(watchdog.longest_s, 3)) == (2, 0.3)


async def test_a_stall_names_the_request_and_the_client_that_caused_it() -> None:
    """A stall's log line names the request and the client that caused it."""
    with capture_logs() as logs, watched_loop():
        async with trio.open_nursery() as nursery:
            port = await nursery.start(serve_remoting, Answering(Clock()), "127.0.0.1", 0)
            async with connect_peer("127.0.0.1", port) as peer:
                await peer.request(Command(SLOW), 30)
            nursery.cancel_scope.cancel()
    stalls = [line for line in logs if line["event"] == "loop stalled"]
    assert any(line["request"] == SLOW and "127.0.0.1:" in line["peer"] for line in stalls)


# -- filters -----------------------------------------------------------------------------------


class Orders:
    """A queue of equal messages, in memory; counts what is read of them."""

    def __init__(self, folder: Path, messages: int, properties: bytes) -> None:
        self.record = encode_record(
            topic=b"T",
            queue_id=0,
            body=b"x",
            properties=properties,
            born_timestamp_ms=0,
            born_host=bytes(8),
        )
        units = np.zeros(messages, UNIT)
        units["position"] = np.arange(messages) * len(self.record)
        units["size"] = len(self.record)
        self.queue = ConsumeQueue(folder, FilePool())
        self.queue.append(units.tobytes())
        self.reads = 0

    def view(self, position: int, size: int) -> memoryview:
        self.reads += 1
        return memoryview(self.record)

    def pull(self, offset: int, expression: str) -> Found:
        return read_queue(
            self.queue,
            offset,
            messages_max=32,
            bytes_max=1 << 20,
            selection=selection(parse_subscription(expression, "SQL92"), self.view),
        )


DEAREST = " OR ".join(["a>9"] * 1169)
SEARCHING = " OR ".join(["a CONTAINS '" + "x" * 90 + "y'"] * 70)


@pytest.mark.parametrize(
    ("expression", "properties"),
    [(DEAREST, b"a\x015\x02"), (SEARCHING, b"a\x01" + b"x" * 30_000 + b"\x02")],
    ids=["comparisons", "searches"],
)
def test_a_pulls_filter_works_within_its_steps(
    tmp_path: Path, expression: str, properties: bytes
) -> None:
    """A filter ends when its steps are used up, and the next pull goes on from there."""
    orders = Orders(tmp_path, 60, properties)
    operations = parse_condition(expression).operations
    offset = pulls = 0
    while offset < 60:
        orders.reads = 0
        found = orders.pull(offset, expression)
        assert found.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert 0 < orders.reads <= 1 + limits.SQL_STEPS_MAX // operations
        assert found.next_offset == offset + orders.reads
        offset, pulls = found.next_offset, pulls + 1
    assert pulls > 5


def test_messages_of_many_properties_count_as_well(tmp_path: Path) -> None:
    """Reading messages with thirty thousand bytes of properties counts as work."""
    orders = Orders(tmp_path, 100, b"a\x01\x02" * 8_000)
    orders.pull(0, "b = 'x'")
    assert orders.reads < 20


def test_an_ordinary_filter_looks_at_as_many_messages_as_before(tmp_path: Path) -> None:
    """A bound of steps spares ordinary filters, and is for those a hundred times as dear."""
    orders = Orders(tmp_path, 600, b"a\x015\x02b\x01x\x02")
    assert orders.pull(0, "a > 9 AND b = 'y'").next_offset == limits.SQL_MESSAGES_SCANNED_MAX


@given(st.text("ab", max_size=40), st.text("ab", min_size=1, max_size=20))
def test_texts_are_found_in_linear_time_and_as_ever(text: str, sought: str) -> None:
    """CONTAINS finds texts in linear time, with the same results as before."""
    assert parse_condition(f"p CONTAINS '{sought}'")({"p": text}) is (sought in text)
    assert parse_condition(f"p NOT CONTAINS '{sought}'")({"p": text}) is (sought not in text)


def test_compiled_filters_are_kept_within_a_bound() -> None:
    """Compiled filters are bounded by characters, not by their number."""
    compiled = filters.CompiledFilters()
    first = compiled.get("n = 0")
    assert compiled.get("n = 0") is first
    for number in range(40):
        compiled.get(f"n = {number} OR " + " OR ".join(["a = 'x'"] * 700))
    assert compiled.characters <= limits.SQL_CHARACTERS_KEPT
    assert compiled.get("n = 0") is not first


def test_a_subscription_of_very_many_tags_is_refused_before_they_are_hashed() -> None:
    """A subscription of eighty thousand tags is refused before they are hashed."""
    with pytest.raises(Refused, match="at most 32768 are read"):
        parse_subscription("||".join(["a"] * 80_000), "TAG")


# -- queries -----------------------------------------------------------------------------------


async def test_a_query_reads_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query of a common key reads a bounded number of bytes, the newest messages first."""
    async with served(tmp_path) as (_, peer):
        await make_topic(peer)
        for number in range(10):
            await peer.request(send_request(b"%d" % number * 1000, i="KEYS\x01k\x02"), 30)
        fields: dict[str, ExtValue] = {
            "topic": TOPIC,
            "key": "k",
            "maxNum": 32,
            "beginTimestamp": 0,
            "endTimestamp": 1 << 60,
        }
        assert len(records(await ask(peer, RequestCode.QUERY_MESSAGE, **fields))) == 10
        monkeypatch.setattr(limits, "QUERY_CANDIDATES_BYTES_MAX", 2500)
        found = records(await ask(peer, RequestCode.QUERY_MESSAGE, **fields))
        assert [bytes(each.body)[:1] for each in found] == [b"7", b"8", b"9"]


# -- heartbeats, notices, held pulls -----------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"clientID":"' + b"x" * CLIENT_BODY_BYTES_MAX + b'"}', "is above 1048576"),
        (b'{"clientID":"c",1:[' + b"[]," * 40_000 + b"1]}", "is above 65536"),
    ],
    ids=["large", "loose"],
)
def test_a_heartbeat_that_would_take_long_to_read_is_refused(body: bytes, problem: str) -> None:
    """A heartbeat that takes long to read is refused; real ones are half as large."""
    with pytest.raises(BadInput, match=problem):
        decode_body(HeartbeatData, body)


async def test_a_heartbeat_of_many_groups_makes_them_with_two_entries(tmp_path: Path) -> None:
    """A heartbeat of a thousand groups makes them with two entries of the log."""
    body = {
        "clientID": "c",
        "consumerDataSet": [{"groupName": f"G{number}"} for number in range(1000)],
    }
    async with served(tmp_path) as (broker, peer):
        before = broker.ledger.status.last_index
        request = Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode())
        assert (await peer.request(request, 30)).code == ResponseCode.SUCCESS
        assert broker.ledger.status.last_index == before + 2
        assert broker.machine.groups.get("G999") is not None
        assert broker.machine.topics.get("%RETRY%G999") is not None


async def test_clients_that_come_at_once_are_told_of_each_other_a_few_times(
    tmp_path: Path,
) -> None:
    """Forty clients cause fewer than the 1,600 notices of all pairs."""
    body = json.dumps({"clientID": "c", "consumerDataSet": [{"groupName": "G"}]}).encode()
    frame = b"".join(encode_frame(Command(RequestCode.HEART_BEAT, body=body)))
    notices = 0

    async def listen(stream: trio.SocketStream) -> None:
        nonlocal notices
        decoder = FrameDecoder()
        async for data in stream:
            decoder.feed(data)
            notices += sum(not command.is_response for command in decoder.frames())

    async with served(tmp_path) as (broker, _), trio.open_nursery() as nursery:
        streams = [await trio.open_tcp_stream("127.0.0.1", broker.port) for _ in range(40)]
        for stream in streams:
            nursery.start_soon(listen, stream)
            await stream.send_all(frame)
        await trio.sleep(4 * limits.NOTIFY_GATHER_S)
        nursery.cancel_scope.cancel()
    for stream in streams:
        await stream.aclose()
    assert 40 <= notices < 500


def test_held_pulls_of_one_connection_are_forgotten_whether_due_or_not() -> None:
    """A closed connection's pulls are forgotten, among a hundred thousand held ones."""
    held, ran = HeldPulls(lambda: None, lambda _: None), list[int]()

    def hold(connection_id: int, number: int) -> None:
        pull = HeldPull(
            connection_id, "G", "T", number % 2, 1.0, None, lambda _: ran.append(number)
        )
        assert held.hold(pull)

    for number in range(6):
        hold(number % 3, number)
    held.expire(2.0)
    for number in range(6, 12):
        hold(number % 3, number)
    held.disconnected(1)
    assert len(held) == 4
    for pull in held.take_due():
        pull.again(pull)
        held.disconnected(2)
    assert ran == [0, 3]
    assert len(held) == 2


# -- many topics -------------------------------------------------------------------------------


def test_files_of_no_use_are_moved_away_at_a_start_and_removed_later(tmp_path: Path) -> None:
    """Directories of no use are moved away at a start and removed later: ten thousand took long."""
    queues = ConsumeQueues(tmp_path / "queues")
    for number in range(10):
        queues.append(f"T{number}", 0, bytes(UNIT_BYTES), number)
    queues.flush()
    ends = dict(list(ends_of(queues).items())[:3])
    queues.close()

    again = ConsumeQueues(tmp_path / "queues")
    again.adopt(drained(again.restoring(ends, {})))
    again.trim()
    assert sorted(path.name for path in (tmp_path / "queues").iterdir()) == ["T0.0", "T1.1", "T2.2"]
    (useless,) = again.take_deleted()
    assert len(list(useless.iterdir())) == 7

    third = ConsumeQueues(tmp_path / "queues")
    third.trim()
    assert not (tmp_path / "queues").exists()
    assert useless in third.take_deleted()


def test_a_queue_is_cut_back_before_it_is_written_to(tmp_path: Path) -> None:
    """A queue's file is cut back, so that a crash's leftover is not read as messages."""
    queues = ConsumeQueues(tmp_path / "queues")
    queues.append("T", 0, bytes(UNIT_BYTES * 10), 1)
    queues.flush()
    again = ConsumeQueues(tmp_path / "queues")
    again.adopt(drained(again.restoring({"T": (1, {0: 4})}, {})))
    again.trim()
    again.append("T", 0, A_UNIT, 1)
    again.flush()
    (path,) = again.take_unsynced()
    assert path.stat().st_size == 5 * UNIT_BYTES
    queue = again.get("T", 0)
    assert queue is not None
    assert queue.read(0, 10).tobytes() == bytes(UNIT_BYTES * 4) + A_UNIT


def test_queues_are_flushed_step_by_step(tmp_path: Path) -> None:
    """A step of a flush makes one file, and queues written to meanwhile come after."""
    queues = ConsumeQueues(tmp_path / "queues")
    for number in range(5):
        queues.append(f"T{number}", 0, bytes(UNIT_BYTES), number)
    steps = queues.flush_steps()
    next(steps)
    queues.append("T0", 0, bytes(UNIT_BYTES), 9)
    assert queues.dirty == 5
    assert len(list(steps)) == 5
    assert len(queues.take_unsynced()) == 5
    assert queues.take_unsynced() == set()
    queues.close()


def test_files_can_be_made_before_queues_are_flushed(tmp_path: Path) -> None:
    """A thread may make the files, so that a busy disk does not stop the loop."""
    queues = ConsumeQueues(tmp_path / "queues")
    for number in range(3):
        queues.append(f"T{number}", 0, A_UNIT, number)
    consume_queue.make_files(queues.new_files())
    made = {path: path.stat().st_ino for path in queues.new_files()}
    queues.flush()
    assert queues.take_unsynced() == set(made)
    assert {path: path.stat().st_ino for path in made} == made
    assert all(path.stat().st_size == UNIT_BYTES for path in made)
    queues.append("T0", 0, bytes(UNIT_BYTES), 0)
    assert queues.new_files() == []
    queues.close()


def test_many_files_are_made_durable_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many files are synced with all of their file system, and few of them one by one."""
    one_by_one: list[Path] = []
    monkeypatch.setattr(consume_queue, "sync_path", one_by_one.append)
    paths = [tmp_path / str(number) for number in range(limits.SYNCED_ONE_BY_ONE_MAX + 1)]
    for path in paths:
        path.write_bytes(b"x")
    consume_queue.sync_files(paths)
    assert one_by_one == []
    consume_queue.sync_files(paths[:2])
    assert one_by_one[:2] == paths[:2]
