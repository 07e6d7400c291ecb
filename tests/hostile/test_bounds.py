"""Bounds of the state against strangers: each table has one, room for others, and an end."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from replicas import Group, Stranger, group

from dledger.remoting.bodies import (
    LockBatchBody,
    LockBatchResponseBody,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode as Code
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import (
    RegisterProducerResponseHeader,
    WriteOnceHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from mqbroker import limits
from mqbroker.state.groups.bits import bits_from_bytes
from mqbroker.state.groups.locks import QueueKey, QueueLocks
from mqbroker.state.groups.offsets import ConsumerOffsets
from mqbroker.state.shares import Shares
from mqbroker.testing.pictured import rows_in
from mqbroker.testing.requests import (
    TOPIC,
    commit_request,
    heartbeat,
    pop_request,
    produce_request,
    records,
    send_request,
    topic_request,
)

# -- shares, as values -------------------------------------------------------------------------

owners = st.sampled_from("abcdef")
steps = st.lists(st.tuples(owners, st.integers(1, 40), st.booleans()), max_size=80)


@given(steps)
def test_nobody_takes_all_rows_whatever_the_owners_do(work: list[tuple[str, int, bool]]) -> None:
    """An owner has its sure rows, and of the rest it leaves as much as it takes."""
    shares, held = Shares("rows", "owner", 100, 20), dict[str, int]()
    for owner, rows, gives_back in work:
        if gives_back:
            back = min(rows, held.get(owner, 0))
            shares.change(owner, -back)
            held[owner] = held.get(owner, 0) - back
        else:
            taken = min(rows, shares.room(owner))
            shares.change(owner, taken)
            held[owner] = held.get(owner, 0) + taken
        assert shares.count == sum(held.values()) <= 100
        assert all(shares.of(each) == count for each, count in held.items())
        assert shares.room("newcomer") >= 1
    again = Shares("rows", "owner", 100, 20)
    again.begin_again(owner for owner, count in held.items() for _ in range(count))
    assert all(again.room(owner) == shares.room(owner) for owner in "abcdefg")


def test_rows_that_are_on_their_way_count() -> None:
    """Rows on their way count, or many requests at once would together pass the bound."""
    shares = Shares("rows", "owner", 100, 20)
    assert shares.room("a") - shares.room("a", coming=5, coming_in_all=5) == 5
    assert shares.room("b", coming_in_all=60) < shares.room("b")
    assert "at most 100" in shares.full("a")


# -- the group, whose tables are small ------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a size that a test can fill."""
    monkeypatch.setattr(limits, "GROUPS_MAX", 10)
    for name in ("LOCKS_MAX", "CONSUMER_OFFSETS_MAX", "POP_IN_FLIGHT_MAX"):
        monkeypatch.setattr(limits, name, 80)
    for name in ("TIMERS_MAX", "TRANSACTIONS_MAX"):
        monkeypatch.setattr(limits, name, 180)
    monkeypatch.setattr(limits, "TOPICS_MAX", 40)
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 40)


def is_refused_at(answer: Command, bound: str) -> bool:
    """Whether an answer names the bound, and that its client may come again."""
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, answer.remark
    assert "retryAfterMillis" in answer.ext
    return bound in (answer.remark or "")


async def beat(stranger: Stranger, name: str) -> None:
    await stranger.do(Command(Code.HEART_BEAT, {}, heartbeat(f"client of {name}", name)))


# -- queue locks ----------------------------------------------------------------------------------


async def lock(
    stranger: Stranger, name: str, queues: int, client_id: str = "c", topic: str = "Wide"
) -> tuple[int, Command]:
    """How many of a topic's first queues a client gets; and the answer."""
    wanted = [MessageQueue(topic, "broker-a", queue_id) for queue_id in range(queues)]
    body = encode_body(LockBatchBody(name, client_id, wanted))
    answer = await stranger.ask(Command(Code.LOCK_BATCH_MQ, {}, body))
    if answer.code != ResponseCode.SUCCESS:
        return 0, answer
    return len(decode_body(LockBatchResponseBody, answer.payload).lock_ok_mq_set), answer


@pytest.mark.parametrize("size", [limits.CLIENT_ID_BYTES_MAX + 1, 20_000])
@pytest.mark.parametrize("character", ["x", "\u00e4", "\U0001f600"])
async def test_a_client_s_id_is_not_kept_with_each_of_a_thousand_locks(
    found: Group, size: int, character: str
) -> None:
    """A long client id is refused by locks and heartbeats, with the longest length."""
    stranger = found.connect()
    await stranger.ask(topic_request("Wide", 1024))
    client_id = character * (size // len(character.encode()) + 1)
    granted, answer = await lock(stranger, "G", 1024, client_id)
    assert granted == 0
    assert f"at most {limits.CLIENT_ID_BYTES_MAX}" in (answer.remark or "")
    beaten = await stranger.ask(Command(Code.HEART_BEAT, {}, heartbeat(client_id)))
    assert beaten.code == ResponseCode.SYSTEM_ERROR
    assert len(answer.remark or "") < 1000
    assert found.machine.locks.shares.count == 0


async def test_locks_of_one_group_leave_room_for_the_others(found: Group, small: None) -> None:
    """A group renews the locks that it has, and is told why it gets fewer than it asks for."""
    stranger = found.connect()
    await stranger.ask(topic_request("Wide", 1024))
    greedy, answer = await lock(stranger, "Greedy", 1024)
    assert 0 < greedy < 40
    assert "queue locks are kept of at most 80" in (answer.remark or "")
    assert (await lock(stranger, "Greedy", greedy))[0] == greedy
    refused = [await lock(found.connect(), f"Made-up-{number}", 1024) for number in range(7)]
    assert 0 < sum(granted for granted, _ in refused) < 50
    honest = found.connect()
    assert (await lock(honest, "Honest", 1))[0] == 1
    assert (await lock(stranger, "Greedy", greedy))[0] == greedy
    assert (await lock(honest, "Honest", 1))[0] == 1
    assert found.machine.locks.shares.count <= 80


async def test_locks_that_ended_are_forgotten_and_the_others_stay(
    found: Group, small: None
) -> None:
    """Ended locks are removed by entries on every replica, so snapshots shrink again."""
    stranger = found.connect()
    await stranger.ask(topic_request("Wide", 1024))
    for number in range(5):
        await lock(found.connect(), f"Gone-{number}", 1024, f"made up {number}")
    stranger = found.connect()
    kept, _ = await lock(stranger, "Honest", 2)
    assert kept
    held = found.machine.locks.shares.count
    for _ in range(40):
        await found.pass_time(20)
        assert (await lock(stranger, "Honest", kept))[0] == kept
    assert held > found.machine.locks.shares.count == kept


async def test_a_lock_that_is_asked_for_again_is_not_forgotten(found: Group) -> None:
    """A lock whose client asks again is not forgotten, though the request is still on its way."""
    stranger = found.connect()
    await stranger.ask(topic_request("Wide", 4))
    assert (await lock(stranger, "G", 1))[0] == 1
    found.ledger.auto = False
    wanted = [MessageQueue("Wide", "broker-a", 0)]
    request = Command(Code.LOCK_BATCH_MQ, {}, encode_body(LockBatchBody("G", "c", wanted)))
    await stranger.tell(request)
    await found.pass_time(2 * limits.LOCK_KEPT_S)
    found.ledger.commit()
    found.ledger.auto = True
    await trio.testing.wait_all_tasks_blocked()
    assert found.machine.locks.held(QueueKey("G", "Wide", 0)) is not None


def test_locks_in_the_order_of_an_older_version_are_forgotten_all_the_same() -> None:
    """Locks of an older version, in the order in which they were first held, are forgotten, too."""
    locks = QueueLocks()
    rows = [("G", "T", 0, "c", 900_000), ("G", "T", 1, "c", 60_000), ("G", "T", 2, "c", 70_000)]
    locks.restore(rows)
    assert [key.queue_id for key, _ in locks.ended_before(800_000)] == [1, 2]
    assert locks.shares.of("G") == 3


# -- consumer offsets -----------------------------------------------------------------------------


async def commit(stranger: Stranger, name: str, queue_id: int, topic: str = "Wide") -> Command:
    return await stranger.ask(commit_request(0, queue_id, consumerGroup=name, topic=topic))


async def test_offsets_are_of_groups_and_queues_that_exist(
    tmp_path: Path, mock_clock: trio.testing.MockClock, small: None
) -> None:
    """Offsets of unknown groups and queues are refused: they would stay for ever."""
    async with group(tmp_path) as found:  # full in the end: it makes no group for honest ones
        stranger = found.connect()
        await stranger.ask(topic_request("Wide", 4))
        for queue_id in (4, 1024, 2**31 - 1):
            answer = await commit(stranger, "G", queue_id)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "does not exist: it has 4" in (answer.remark or "")
        assert found.machine.groups.get("G") is None
        made_up = [await commit(found.connect(), f"Made-up-{number}", 0) for number in range(20)]
        assert is_refused_at(made_up[-1], "consumer groups; at most 10")
        assert {row[0] for row in rows_in(found.machine.offsets.picture())} == {
            config.group_name for config in found.machine.groups
        }
        assert (await commit(stranger, "Made-up-0", 3)).code == ResponseCode.SUCCESS
        found.agree()


async def test_offsets_of_one_group_leave_room_for_the_others(found: Group, small: None) -> None:
    """A group at its bound keeps its known queues, and gives its rows back when it is deleted."""
    stranger = found.connect()
    await stranger.ask(topic_request("Wide", 1024))
    names = ["Greedy", "Second", "Honest"]
    for name in names:
        await beat(stranger, name)
    kept = 0
    while (answer := await commit(stranger, "Greedy", kept)).code == ResponseCode.SUCCESS:
        kept += 1
    assert is_refused_at(answer, f"{kept} of them for group 'Greedy'")
    assert 20 < kept < 40
    reset: dict[str, ExtValue] = {"topic": "Wide", "group": "Greedy", "timestamp": -1}
    reset |= {"isForce": True}
    assert is_refused_at(
        await stranger.ask(Command(Code.INVOKE_BROKER_TO_RESET_OFFSET, reset)), "offsets"
    )
    clone: dict[str, ExtValue] = {"srcGroup": "Greedy", "destGroup": "Second", "topic": "Wide"}
    assert is_refused_at(await stranger.ask(Command(Code.CLONE_GROUP_OFFSET, clone)), "offsets")
    for queue_id in (0, kept - 1):
        assert (await commit(stranger, "Greedy", queue_id)).code == ResponseCode.SUCCESS
    assert (await commit(stranger, "Honest", 7)).code == ResponseCode.SUCCESS
    gone: dict[str, ExtValue] = {"groupName": "Greedy", "cleanOffset": True}
    await stranger.ask(Command(Code.DELETE_SUBSCRIPTIONGROUP, gone))
    assert len(found.machine.offsets) == found.machine.offsets.shares.count == 1


@given(st.lists(st.tuples(st.sampled_from("GH"), st.sampled_from("TU"), st.integers(0, 3))))
def test_offsets_are_counted_whatever_becomes_of_topics_and_groups(
    commits: list[tuple[str, str, int]],
) -> None:
    """Rows are counted rightly after commits, deletions and a restart."""
    offsets = ConsumerOffsets()
    for number, (name, topic, queue_id) in enumerate(commits):
        offsets.commit(name, topic, queue_id, number)
        if queue_id == 3:
            offsets.delete_topic(topic)
        elif queue_id == 2 and topic == "U":
            offsets.delete_group(name)
        rows = rows_in(offsets.picture())
        assert len(offsets) == len(rows)
        for each in "GH":
            assert offsets.shares.of(each) == sum(row[0] == each for row in rows)
    again = ConsumerOffsets()
    again.restore(rows_in(offsets.picture()))
    assert again.shares.room("G") == offsets.shares.room("G")


# -- popped messages ------------------------------------------------------------------------------

HIDDEN_MS = limits.POP_INVISIBLE_S_MAX * 1000


async def pop(stranger: Stranger, name: str, count: int) -> tuple[int, Command]:
    """How many messages a group gets; and the answer."""
    answer = await stranger.ask(pop_request(-1, count, name, hidden_ms=HIDDEN_MS))
    return len(records(answer)) if answer.code == ResponseCode.SUCCESS else 0, answer


async def test_messages_that_one_group_has_in_hand_leave_room_for_the_others(
    found: Group, small: None
) -> None:
    """A group finds room for its pops, however many others give nothing back for days."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    await stranger.ask(produce_request("a", runs=((0, 50), (1, 50))))
    greedy = 0
    for _ in range(20):
        greedy += (await pop(stranger, "Greedy", 32))[0]
    got, answer = await pop(stranger, "Greedy", 32)
    assert got == 0
    assert f"{greedy} of them for group 'Greedy'" in (answer.remark or "")
    assert 20 < greedy < 40
    for number in range(6):
        await pop(found.connect(), f"Greedy-{number}", 1000)
    assert (await pop(found.connect(), "Honest", 32))[0] >= 2
    assert found.machine.popped.count <= 80
    await stranger.ask(Command(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Greedy"}))
    assert (await pop(stranger, "Honest", 32))[0] >= 2
    rows = rows_in(found.machine.popped.picture())
    bits = sum(bits_from_bytes(each[1]).bit_count() for row in rows for each in row[5])
    assert found.machine.popped.count == bits


async def test_pops_that_are_on_their_way_count(found: Group, small: None) -> None:
    """Pops on their way count, or a hundred at once would take what each of them may."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    await stranger.ask(produce_request("a", runs=((0, 50), (1, 50))))
    await beat(stranger, "Greedy")
    found.ledger.auto = False
    for _ in range(10):
        await stranger.tell(pop_request(group="Greedy", hidden_ms=HIDDEN_MS))
    found.ledger.commit()
    found.ledger.auto = True
    await trio.testing.wait_all_tasks_blocked()
    assert 0 < found.machine.popped.count < 40


async def test_a_filter_that_passes_few_does_not_make_long_rows(
    found: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter that passes few messages makes no row with a bit for each one between them."""
    monkeypatch.setattr(limits, "POP_SPAN_MESSAGES_MAX", 16)
    stranger = found.connect()
    await stranger.ask(topic_request())
    for number in range(40):
        tags = "TAGS\x01rare\x02" if number in (0, 5, 30) else ""
        await stranger.ask(send_request(b"m", e="0", i=f"{tags}UNIQ_KEY\x01{number}\x02"))
    got = []
    for _ in range(3):
        answer = await stranger.ask(pop_request(group="G", hidden_ms=HIDDEN_MS, tags="rare"))
        got.append([record.queue_offset for record in records(answer)])
    assert got == [[0, 5], [30], []]
    spans = [len(each[1]) for row in rows_in(found.machine.popped.picture()) for each in row[5]]
    assert max(spans) <= 2


# -- messages that wait ---------------------------------------------------------------------------


def half(topic: str, producers: str) -> Command:
    """A transactional message of a producer group."""
    return send_request(b"half", b=topic, e="0", i=f"TRAN_MSG\x01true\x02PGROUP\x01{producers}\x02")


def timed(topic: str, _: str) -> Command:
    """A message that waits until tomorrow."""
    return send_request(b"later", b=topic, e="0", i="TIMER_DELAY_SEC\x0186400\x02")


async def fill(stranger: Stranger, request: Callable[[], Command]) -> tuple[int, Command]:
    """Send until it is refused; how many were taken, and the refusal."""
    taken = 0
    while True:
        answer = await stranger.ask(request())
        if answer.code != ResponseCode.SUCCESS:
            return taken, answer
        taken += 1


@pytest.mark.parametrize(("what", "kind"), [("open transactions", half), ("a timer", timed)])
async def test_messages_of_one_topic_that_wait_leave_room_for_others(
    found: Group, small: None, what: str, kind: Callable[[str, str], Command]
) -> None:
    """A topic may have eight ninths of the room beyond the sure rows, over any producers."""
    stranger = found.connect()
    for topic in ("Greedy", "Second", "Honest"):
        await stranger.ask(topic_request(topic))
    numbers = itertools.count()
    taken, answer = await fill(stranger, lambda: kind("Greedy", f"P{next(numbers)}"))
    assert is_refused_at(answer, what)
    assert "for topic 'Greedy'" in (answer.remark or "")
    assert 100 < taken < 180
    assert (await fill(stranger, lambda: kind("Second", "P")))[0] > 5
    await stranger.do(kind("Honest", "P of honest ones"))


async def test_transactions_of_one_producer_group_leave_room_for_others(
    found: Group, small: None
) -> None:
    """A producer group at its bound leaves room in its topic, and gets its own back at the end."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    taken, answer = await fill(stranger, lambda: half(TOPIC, "Greedy"))
    assert is_refused_at(answer, "for topic 'Orders'")
    other = await stranger.ask(half("Other", "Greedy"))
    assert is_refused_at(other, "for producer group 'Greedy'")
    await stranger.ask(topic_request("Other"))
    await stranger.do(half("Other", "Honest"))
    assert len(found.machine.halves) == taken + 1
    await found.pass_time(1)
    for _ in range(20):  # nobody knows how they ended: they are given up
        await found.pass_time(60)
    assert len(found.machine.halves) == 0
    assert (await fill(stranger, lambda: half(TOPIC, "Greedy")))[0] == taken


@pytest.mark.parametrize("letter", ["x", "\u20ac"])
async def test_a_producer_group_of_a_transaction_has_a_name_and_no_text(
    found: Group, letter: str
) -> None:
    """A producer group has a valid name, as the leader keeps it with each open transaction."""
    stranger = found.connect()
    await stranger.ask(topic_request())
    await stranger.do(half(TOPIC, letter * 255))
    for length in (256, 9000):
        refused = await stranger.ask(half(TOPIC, letter * length))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"{length} characters; at most 255" in str(refused.remark)
    assert len(found.machine.halves) == 1


# -- producers with a name ------------------------------------------------------------------------


def naming(name: str, instance: str = "a") -> Command:
    """A REGISTER_PRODUCER request for a name."""
    return Command(Code.REGISTER_PRODUCER, {"producerName": name, "instance": instance})


def writing(name: str, epoch: int) -> Command:
    """A WRITE_ONCE request with one message."""
    message = produce_request(name, runs=((0, 1),))
    parts = [(TOPIC, len(message.payload), [(0, 1)])]
    header = WriteOnceHeader(name, epoch, 0, 1, parts, "", [])
    return Command(Code.WRITE_ONCE, encode_header(header), message.payload)


async def test_names_over_one_connection_leave_as_many_to_others(found: Group, small: None) -> None:
    """Names over one connection leave room: a thousand a second once shut out all others."""
    stranger = found.connect()
    numbers = itertools.count()
    taken, answer = await fill(stranger, lambda: naming(f"made-up-{next(numbers)}"))
    assert taken == 20
    assert is_refused_at(answer, "20 producers were named over this connection")
    await stranger.do(naming("made-up-0"))
    await found.connect().do(naming("honest"))


async def test_names_that_wrote_nothing_make_room_and_the_others_stay(
    found: Group, small: None
) -> None:
    """Names without writes make room; fenced ones stay, lest old instances come back."""
    await found.connect().ask(topic_request())
    kept = ["writer", "replaced"]
    epochs = [
        decode_header(
            RegisterProducerResponseHeader, await found.connect().ask(naming(name, instance))
        ).epoch
        for name, instance in (("writer", "a"), ("replaced", "a"), ("replaced", "b"))
    ]
    await found.connect().do(writing("writer", epochs[0]))
    for number in range(60):
        await found.connect().ask(naming(f"made-up-{number}"))
    assert len(found.machine.producers) == 40
    refused = await found.connect().ask(naming("honest"))
    assert is_refused_at(refused, "producers have names")
    await found.pass_time(limits.PRODUCER_IDLE_S + 1)
    await found.connect().do(naming("honest"))
    assert {name: found.machine.producers.epoch(name) for name in kept} == {
        "writer": epochs[0],
        "replaced": epochs[2],
    }
    assert (await found.connect().ask(naming("replaced", "a"))).code == ResponseCode.PRODUCER_FENCED


# -- topics, queues and groups --------------------------------------------------------------------


async def test_names_that_one_client_makes_up_leave_as_many_to_others(
    found: Group, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's made-up topics and groups leave room, and an operator may make more."""
    monkeypatch.setattr(limits, "GROUPS_MAX", 40)
    stranger, numbers = found.connect(), itertools.count()
    await stranger.ask(topic_request("Wide", 4))
    free = limits.TOPICS_MAX - len(found.machine.topics)
    taken, answer = await fill(stranger, lambda: produce_request("a", f"T{next(numbers)}"))
    assert taken == free // 2
    assert is_refused_at(answer, f"{taken} topics were made over this connection")
    groups = [await commit(stranger, f"G{number}", 0) for number in range(30)]
    assert is_refused_at(groups[-1], "20 consumer groups were made over this connection")
    other = found.connect()
    for asked, name, offset in ((stranger, "G0", 1), (other, "H", 0)):
        assert (await commit(asked, name, offset)).code == ResponseCode.SUCCESS
    await other.do(produce_request("b", "T"))
    await stranger.do(topic_request("Made", 1))


async def test_queues_of_all_topics_have_a_bound(
    found: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal says how many queues there would be; a deleted topic gives its own back."""
    await found.serves()
    stranger = found.connect()
    monkeypatch.setattr(limits, "QUEUES_MAX", found.machine.topics.queues + 100)
    await stranger.do(topic_request("Wide", 60))
    for more in (topic_request("Wide", 101), topic_request("Second", 60)):
        assert is_refused_at(await stranger.ask(more), f"at most {limits.QUEUES_MAX} are kept")
    await stranger.ask(Command(Code.DELETE_TOPIC_IN_BROKER, {"topic": "Wide"}))
    await stranger.do(topic_request("Second", 60))
    assert found.machine.topics.queues == sum(each.queues for each in found.machine.topics)
