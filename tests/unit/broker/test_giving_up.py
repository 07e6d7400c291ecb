"""Dead letters of POP: stored and acknowledged by one entry, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from dledger.errors import DledgerError
from dledger.log.entry import Kind
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import Record
from mqbroker.state.aside import Unusable, encode_note
from mqbroker.state.groups.bits import bits_from_bytes, offsets_in
from mqbroker.state.groups.given_up import (
    GIVEN_UP_MARK,
    GivenUp,
    decode_given_up,
)
from mqbroker.state.groups.popping import PopAck
from mqbroker.state.machine import Machine
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.requests import (
    GROUP,
    POP_HIDDEN_MS,
    TIMEOUT_S,
    TOPIC,
    ack_request,
    ask,
    asked,
    give_up_request,
    heartbeat,
    hide_request,
    make_topic,
    pop_request,
    produce_request,
    records,
)

DEAD = f"%DLQ%{GROUP}"


async def pop(peer: Peer, count: int = 2) -> tuple[list[Record], int]:
    """Pop `count` messages: they, and their pop time."""
    answer = await peer.request(pop_request(), TIMEOUT_S)
    found = records(answer)
    assert len(found) == count
    return found, int(str(answer.ext["popTime"]))


async def give_up(peer: Peer, record: Record, pop_time: int | None) -> Command:
    request = give_up_request(record.physical_offset, pop_time)
    answer = await peer.request(request, TIMEOUT_S)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def place(record: Record) -> tuple[int, int]:
    """Queue and offset that name a message."""
    return record.queue_id, record.queue_offset


def in_flight(machine: Machine) -> set[int]:
    """The offsets in flight of queue 0."""
    queue = machine.popped.queue(GROUP, TOPIC, 0)
    found = () if queue is None else queue.deliveries()
    return {offset for each in found for offset in offsets_in(each.base, each.bits)}


async def shown(peer: Peer, record: Record, pop_time: int) -> int:
    """Make a message visible at once, and return its new pop time."""
    answer = await peer.request(hide_request(place(record), pop_time, 0), TIMEOUT_S)
    return int(str(answer.ext["popTime"]))


async def begin(peer: Peer) -> tuple[list[Record], int]:
    """Two messages of queue 0, popped."""
    await make_topic(peer)
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    await peer.request(produce_request("k", runs=[(0, 2)]), TIMEOUT_S)
    return await pop(peer)


async def test_at_any_crash_a_message_is_a_dead_letter_or_in_flight(tmp_path: Path) -> None:
    """A message is a dead letter or in flight, never both, after a crash at any entry."""
    async with served(tmp_path / "a") as (broker, peer):
        found, pop_time = await begin(peer)
        answer = await give_up(peer, found[1], pop_time)
        assert answer.ext["late"] == 0
        (tmp_path / "b").mkdir()
        replica = Machine(tmp_path / "b")
        seen = []
        for entry in broker.ledger.entries(1):
            replica.apply(entry)
            if seen or in_flight(replica):
                seen.append((1 in in_flight(replica), replica.queues.end(DEAD, 0)))
        assert set(seen) == {(True, 0), (False, 1)}
        assert in_flight(replica) == {0}
        assert replica.offsets.get(GROUP, TOPIC, 0) == 0
        replica.close()


async def test_who_comes_after_the_next_delivery_buries_nothing(
    broker: MemoryBroker, peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    """A pop time that is not the last one buries nothing: another member has the message."""
    found, pop_time = await begin(peer)
    await trio.sleep(POP_HIDDEN_MS / 1000)
    _, second = await pop(peer)
    for stale in (pop_time, 0, -1, 2**63 - 1):
        assert (await give_up(peer, found[0], stale)).ext["late"] == 1
    assert broker.machine.queues.end(DEAD, 0) == 0
    assert (await give_up(peer, found[0], second)).ext["late"] == 0


async def test_a_stock_consumer_stores_and_acknowledges_by_itself(
    broker: MemoryBroker, peer: Peer
) -> None:
    """Without a pop time the answer has no fields of ours, and the message stays in flight."""
    found, _ = await begin(peer)
    answer = await give_up(peer, found[0], None)
    assert answer.ext == {}
    assert in_flight(broker.machine) == {0, 1}
    assert broker.machine.queues.end(DEAD, 0) == 1


@pytest.mark.parametrize("before", ["pop", "ack", "hide"])
async def test_what_is_on_its_way_comes_first(
    broker: MemoryBroker, peer: Peer, before: str
) -> None:
    """A message with another entry on its way stores no dead letter."""
    found, pop_time = await begin(peer)
    await give_up(peer, found[1], pop_time)  # makes the topic
    if before == "pop":
        pop_time = await shown(peer, found[0], pop_time)
    requests = {
        "pop": pop_request(),
        "ack": ack_request(place(found[0]), pop_time),
        "hide": hide_request(place(found[0]), pop_time, 9000),
    }
    broker.ledger.auto = False
    answers = asked(peer, requests[before])
    await until(lambda: len(broker.ledger.uncommitted) == 1)
    late = await give_up(peer, found[0], pop_time)

    assert (late.ext["late"], answers) == (1, [])
    broker.ledger.commit()
    await until(lambda: len(answers) == 1)
    assert broker.machine.queues.end(DEAD, 0) == 1


@pytest.mark.parametrize("behind", ["pop", "ack", "hide"])
async def test_what_comes_behind_finds_it_done(
    broker: MemoryBroker, peer: Peer, behind: str
) -> None:
    """Requests in the log after the dead letter have no effect on its message."""
    found, pop_time = await begin(peer)
    await give_up(peer, found[1], pop_time)
    pop_time = await shown(peer, found[0], pop_time)
    broker.ledger.auto = False
    answers = asked(peer, give_up_request(found[0].physical_offset, pop_time))
    await until(lambda: len(broker.ledger.uncommitted) == 1)
    requests = {
        "pop": pop_request(),
        "ack": ack_request(place(found[0]), pop_time),
        "hide": hide_request(place(found[0]), pop_time, 9000),
    }
    behind_it = asked(peer, requests[behind])
    await until(lambda: len(broker.ledger.uncommitted) == 2)
    broker.ledger.commit()
    await until(lambda: bool(answers and behind_it))

    assert broker.machine.queues.end(DEAD, 0) == 2
    assert in_flight(broker.machine) == set()
    assert answers[0].ext["late"] == 0


async def test_the_second_of_two_at_once_is_asked_to_wait(broker: MemoryBroker, peer: Peer) -> None:
    """A second request waits for the first, and is told that there is nothing to do."""
    found, pop_time = await begin(peer)
    await give_up(peer, found[1], pop_time)
    broker.ledger.auto = False
    request = give_up_request(found[0].physical_offset, pop_time)
    answers = asked(peer, request)
    await until(lambda: len(broker.ledger.uncommitted) == 1)
    again = await peer.request(give_up_request(found[0].physical_offset, pop_time), TIMEOUT_S)
    assert again.code == ResponseCode.SERVICE_NOT_AVAILABLE
    broker.ledger.commit()
    await until(lambda: len(answers) == 1)

    assert (await give_up(peer, found[0], pop_time)).ext["late"] == 1


async def test_an_entry_is_one_with_its_note(broker: MemoryBroker, peer: Peer) -> None:
    """An entry has three records of one kind: mark, note, letter."""
    found, pop_time = await begin(peer)
    await give_up(peer, found[0], pop_time)
    last = [entry for entry in broker.ledger.entries(1) if entry.kind == Kind.MESSAGES][-1]
    first = Record(last.body)
    assert (first.topic, bytes(first.body)) == (OP_TOPIC, GIVEN_UP_MARK)
    note = Record(last.body[first.size :])
    letter = Record(last.body[first.size + note.size :])
    given_up = decode_given_up(note.body)
    assert [bits_from_bytes(ack.bits) for ack in given_up.acks] == [1]
    assert given_up.sizes == [letter.size]
    assert (letter.topic, bytes(letter.body)) == (DEAD, bytes(found[0].body))


ACK = PopAck(GROUP, TOPIC, 0, 1, 0, b"\x01")


@pytest.mark.parametrize(
    ("note", "why"),
    [
        (b"", "and not which"),
        (b"\xc1", "and not which"),
        (encode_note(GivenUp([ACK], -1, [1])), "at -1 ms"),
        (encode_note(GivenUp([ACK], 1, [0])), r"\[0\]"),
        (encode_note(GivenUp([ACK], 1, [-5])), r"\[-5\]"),
        (encode_note(GivenUp([PopAck(GROUP, TOPIC, 0, 1, -1, b"\x01")], 1, [1])), "message -1"),
    ],
)
def test_what_no_leader_writes_is_set_aside(note: bytes, why: str) -> None:
    """Every replica refuses it alike."""
    with pytest.raises(Unusable, match=why) as caught:
        decode_given_up(note)
    assert isinstance(caught.value, DledgerError)


def test_an_ack_of_what_is_not_there_has_no_effect(tmp_path: Path) -> None:
    """An operator's reset came between: what was set stands."""
    machine = Machine(tmp_path)
    _give_up(machine, [ACK])
    assert (machine.popped.count, machine.clock_ms) == (0, 7)
    machine.close()


def _give_up(machine: Machine, acks: Sequence[PopAck]) -> None:
    machine.give_up(decode_given_up(encode_note(GivenUp([*acks], 7, [1]))))
