"""Named producers: outputs and consumed offsets in one entry, each write stored once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dledger.log.entry import Entry, Kind
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import (
    RegisterProducerHeader,
    RegisterProducerResponseHeader,
    WriteOnceHeader,
    WriteOnceResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.names import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqbroker.state.control import DropHead, encode_control
from mqbroker.state.decisions import STAGED_MARK
from mqbroker.state.groups.given_up import GIVEN_UP_MARK
from mqbroker.state.moves import decode_move
from mqbroker.state.once import DECISION_MARK, MARK
from mqbroker.testing import MemoryBroker, until
from mqbroker.testing.requests import (
    GROUP,
    TIMEOUT_S,
    TOPIC,
    ask,
    asked,
    commit,
    heartbeat,
    make_topic,
    produce_request,
    pull_request,
    records,
)

Move = tuple[str, int, int, int, int | None]


async def register(peer: Peer, name: str = "billing", instance: str = "a") -> int:
    """The epoch that an instance gets."""
    header = RegisterProducerHeader(producer_name=name, instance=instance)
    answer = await peer.request(
        Command(RequestCode.REGISTER_PRODUCER, encode_header(header)), TIMEOUT_S
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_header(RegisterProducerResponseHeader, answer).epoch


def write_request(
    epoch: int,
    sequence: int,
    outputs: Sequence[tuple[str, str, Sequence[tuple[int, int]]]] = (),
    moves: Sequence[Move] = (),
    *,
    name: str = "billing",
    stream: int = 0,
    group_only: str = "",
) -> Command:
    """WRITE_ONCE: `outputs` are (key, topic, runs of (queue id, count))."""
    parts, body = [], b""
    for key, topic, runs in outputs:
        content = bytes(produce_request(key, topic, runs).payload)
        parts.append((topic, len(content), list(runs)))
        body += content
    header = WriteOnceHeader(
        producer_name=name,
        epoch=epoch,
        stream=stream,
        sequence=sequence,
        parts=parts,
        group=GROUP if moves else group_only,
        moves=list(moves),
    )
    return Command(RequestCode.WRITE_ONCE, encode_header(header), body)


def told(answer: Command) -> WriteOnceResponseHeader:
    """The header of a successful answer."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_header(WriteOnceResponseHeader, answer)


async def stored(peer: Peer, topic: str, queue_id: int = 0) -> list[bytes]:
    """The bodies in a queue."""
    pull = pull_request(queue_id, topic=topic, suspendTimeoutMillis=0)
    answer = await peer.request(pull, TIMEOUT_S)
    return [bytes(record.body) for record in records(answer)]


OUTPUTS = (("o", "Bills", ((0, 2), (1, 1))), ("p", "Mails", ((3, 1),)))


async def begin(peer: Peer) -> int:
    """Topics, and inputs in queue 0; the producer's epoch."""
    for topic in (TOPIC, "Bills", "Mails"):
        await make_topic(peer, topic)
    await peer.request(produce_request("in", runs=((0, 9),)), TIMEOUT_S)
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    return await register(peer)


async def test_outputs_and_offsets_come_together(broker: MemoryBroker, peer: Peer) -> None:
    """Outputs go into any number of topics, with each place in the answer, and offsets."""
    epoch = await begin(peer)
    moves = [(TOPIC, 0, 0, 5, None)]
    answer = told(await peer.request(write_request(epoch, 1, OUTPUTS, moves), TIMEOUT_S))

    assert answer.offsets == [(0, 0), (1, 0), (3, 0)]
    assert not answer.duplicate
    assert broker.machine.offsets.get(GROUP, TOPIC, 0) == 5
    assert await stored(peer, "Bills") == [b"o 0 0", b"o 0 1"]
    assert await stored(peer, "Bills", 1) == [b"o 1 0"]
    assert await stored(peer, "Mails", 3) == [b"p 3 0"]
    first = broker.ledger.view(answer.position, 4)
    assert int.from_bytes(first, "big") > 0


async def test_a_repeat_gets_the_first_answer(broker: MemoryBroker, peer: Peer) -> None:
    """A repeat gets the first answer, also after others' appends; other messages are refused."""
    epoch = await begin(peer)
    request = write_request(epoch, 1, OUTPUTS, [(TOPIC, 0, 0, 5, None)])
    first = told(await peer.request(request, TIMEOUT_S))
    await peer.request(produce_request("other", "Bills"), TIMEOUT_S)
    again = told(await peer.request(request, TIMEOUT_S))

    assert again.duplicate
    assert (again.position, again.offsets) == (first.position, first.offsets)
    assert broker.machine.queues.end("Mails", 3) == 1
    changed = write_request(epoch, 1, OUTPUTS[:1], [(TOPIC, 0, 0, 5, None)])
    refused = await peer.request(changed, TIMEOUT_S)
    assert refused.code == ResponseCode.MESSAGE_ILLEGAL
    assert "other messages" in (refused.remark or "")


async def test_a_repeat_is_stored_although_its_topic_is_gone(peer: Peer) -> None:
    """A repeat is answered as before, though its topic was deleted since."""
    epoch = await begin(peer)
    request = write_request(epoch, 1, OUTPUTS, [(TOPIC, 0, 0, 5, None)])
    told(await peer.request(request, TIMEOUT_S))
    await ask(peer, RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)

    assert told(await peer.request(request, TIMEOUT_S)).duplicate


async def test_a_repeat_is_known_although_retention_took_the_messages(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A repeat of messages that retention removed is answered without their places."""
    epoch = await begin(peer)
    request = write_request(epoch, 1, OUTPUTS, [(TOPIC, 0, 0, 5, None)])
    told(await peer.request(request, TIMEOUT_S))
    status = broker.ledger.status
    drop = DropHead(status.end_position, status.last_index + 1)
    broker.ledger.append_nowait(encode_control(drop), Kind.CONTROL, lambda _: None)
    again = told(await peer.request(request, TIMEOUT_S))

    assert (again.duplicate, again.position, again.offsets) == (True, -1, [])
    assert broker.machine.queues.end("Mails", 3) == 1


async def test_a_repeat_that_overtakes_the_first_waits_for_it(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A repeat that overtakes the first request gets the same answer after the commit."""
    epoch = await begin(peer)
    broker.ledger.auto = False
    request = write_request(epoch, 1, OUTPUTS)
    answers: list[Command] = []
    for _ in range(2):
        copy = Command(request.code, dict(request.ext), request.payload)
        peer.request_nowait(copy, answers.append)  # type: ignore[arg-type]
    await until(lambda: bool(broker.ledger.uncommitted))
    await ask(peer, RequestCode.GROUP_INFO)  # the second was read by now
    assert len(broker.ledger.uncommitted) == 1
    broker.ledger.commit()
    await until(lambda: len(answers) == 2)

    assert [told(answer).duplicate for answer in answers] == [False, True]


async def test_an_older_instance_is_fenced_and_told_so(broker: MemoryBroker, peer: Peer) -> None:
    """An older instance, whose epoch is below the newer one's, is refused and told so."""
    older = await begin(peer)
    assert await register(peer) == older, "the answer to a registration was lost"
    newer = await register(peer, instance="b")
    refused = await peer.request(write_request(older, 1, OUTPUTS), TIMEOUT_S)

    assert newer > older
    again = await peer.request(
        Command(RequestCode.REGISTER_PRODUCER, {"producerName": "billing", "instance": "a"}),
        TIMEOUT_S,
    )
    assert again.code == ResponseCode.PRODUCER_FENCED, "it came late, or again"
    assert refused.code == ResponseCode.PRODUCER_FENCED
    assert f"epoch {newer} has the name" in (refused.remark or "")
    assert broker.machine.queues.end("Bills", 0) == 0
    told(await peer.request(write_request(newer, 1, OUTPUTS), TIMEOUT_S))


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"sequence": 0}, ResponseCode.INVALID_PARAMETER, "write 0"),
        ({"name": "nobody"}, ResponseCode.PRODUCER_FENCED, "not known"),
        ({"stream": 16}, ResponseCode.INVALID_PARAMETER, "stream 16"),
        ({"outputs": (), "group_only": "C"}, ResponseCode.INVALID_PARAMETER, "none of its queues"),
        ({"name": "a b"}, ResponseCode.INVALID_PARAMETER, "a b"),
        ({"moves": [(TOPIC, 0, 5, -1, None)]}, ResponseCode.INVALID_PARAMETER, "from 5 to -1"),
        (
            {"moves": [(TOPIC, 0, 5, 6, None), (TOPIC, 0, 5, 7, None)]},
            ResponseCode.INVALID_PARAMETER,
            "two offsets",
        ),
        ({"moves": [("None", 0, 5, 6, None)]}, ResponseCode.TOPIC_NOT_EXIST, "None"),
        (
            {"moves": [(TOPIC, 0, 0, 3, None)]},  # another member was there, and has its outputs
            ResponseCode.OFFSET_MOVED_ON,
            "is at 5 for group 'C', not at 0",
        ),
        ({"moves": [(TOPIC, 0, 5, 6, 77)]}, ResponseCode.NOT_LOCK_OWNER, "nobody has it"),
        ({"outputs": [("x", OP_TOPIC, ((0, 1),))]}, ResponseCode.NO_PERMISSION, "the broker"),
        ({"outputs": [("x", "Bills", ((9, 1),))]}, ResponseCode.INVALID_PARAMETER, "queue 9"),
    ],
)
async def test_what_can_t_be_is_refused_before_anything_is_stored(
    broker: MemoryBroker, peer: Peer, change: dict[str, object], code: int, words: str
) -> None:
    """A wrong write is refused before anything is stored; its sequence stays free."""
    epoch = await begin(peer)
    told(await peer.request(write_request(epoch, 1, moves=[(TOPIC, 0, 0, 5, None)]), TIMEOUT_S))
    end = broker.ledger.status.last_index
    asked: dict[str, object] = {"epoch": epoch, "sequence": 2, "outputs": OUTPUTS} | change
    refused = await peer.request(write_request(**asked), TIMEOUT_S)  # type: ignore[arg-type]

    assert refused.code == code, refused.remark
    assert words in (refused.remark or "")
    assert broker.ledger.status.last_index == end
    told(await peer.request(write_request(epoch, 2, OUTPUTS), TIMEOUT_S))


async def test_a_member_that_lost_its_lock_moves_nothing(peer: Peer) -> None:
    """A member that lost its lock moves no offset: the queue has another owner."""
    epoch = await begin(peer)
    body = (
        b'{"consumerGroup":"C","clientId":"c2","mqSet":'
        b'[{"topic":"Orders","brokerName":"broker-a","queueId":0}],"withTokens":true}'
    )
    assert (await ask(peer, RequestCode.LOCK_BATCH_MQ, body)).code == ResponseCode.SUCCESS
    refused = await peer.request(write_request(epoch, 1, moves=[(TOPIC, 0, 0, 5, 1)]), TIMEOUT_S)

    assert refused.code == ResponseCode.NOT_LOCK_OWNER


async def test_whoever_asks_for_an_offset_waits_for_a_transaction_of_it(
    broker: MemoryBroker, peer: Peer
) -> None:
    """The next owner of a queue begins behind it; and a commit below it does not take it back."""
    epoch = await begin(peer)
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    broker.ledger.auto = False
    peer.request_nowait(write_request(epoch, 1, OUTPUTS, [(TOPIC, 0, 0, 5, None)]), lambda _: None)
    await until(lambda: len(messages_in(broker)) == 1)
    place: dict[str, ExtValue] = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
    answers = asked(peer, Command(RequestCode.QUERY_CONSUMER_OFFSET, place))
    await commit(peer, 3)
    assert answers == []
    broker.ledger.commit()
    await until(lambda: bool(answers))

    assert answers[0].ext["offset"] == 5
    assert broker.machine.offsets.get(GROUP, TOPIC, 0) == 5


def messages_in(broker: MemoryBroker) -> list[Entry]:
    """The entries of messages that wait to be committed."""
    return [entry for entry in broker.ledger.uncommitted if entry.kind == Kind.MESSAGES]


@pytest.mark.parametrize("mark", [MARK, GIVEN_UP_MARK, STAGED_MARK, DECISION_MARK])
def test_an_older_replica_stops_at_such_an_entry(mark: bytes) -> None:
    """An older replica takes the mark for a move out of an unknown topic, and stops."""
    assert decode_move(mark).topic not in (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC)


async def test_the_second_of_two_transactions_of_a_queue_is_asked_to_wait(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A second transaction of a queue waits, as the group's place is not known before."""
    epoch = await begin(peer)
    other = await register(peer, "other")
    broker.ledger.auto = False
    peer.request_nowait(write_request(epoch, 1, OUTPUTS, [(TOPIC, 0, 0, 5, None)]), lambda _: None)
    await until(lambda: bool(broker.ledger.uncommitted))
    waits = await peer.request(
        write_request(other, 1, OUTPUTS, [(TOPIC, 0, 0, 3, None)], name="other"), TIMEOUT_S
    )

    assert waits.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "retryAfterMillis" in waits.ext
    assert len(broker.ledger.uncommitted) == 1
