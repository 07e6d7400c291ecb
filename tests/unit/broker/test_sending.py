"""Sends to a broker on a real socket: stored messages, and answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import (
    ProduceResponseHeader,
    PullMessageResponseHeader,
    SendMessageResponseHeader,
    decode_header,
)
from dledger.remoting.message import (
    BatchItem,
    batch_encode,
    host_bytes,
    offset_message_id_decode,
    properties_decode,
    properties_encode,
)
from mqbroker.config import BrokerConfig
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.requests import (
    ask,
    heartbeat,
    make_topic,
    produce_request,
    pull_request,
    records,
    send_request,
)

from .test_resends import messages_wait

Code = ResponseCode


async def test_a_produced_batch_can_be_pulled_byte_for_byte(peer: Peer) -> None:
    """Queue offsets, positions, store time and host are the broker's, all else the producer's."""
    response = await peer.request(produce_request("a"), 5)
    assert response.code == Code.SUCCESS, response.remark
    stored = decode_header(ProduceResponseHeader, response)
    assert stored.offsets == [(0, 0), (3, 0)]
    assert not stored.duplicate
    pulled = await peer.request(pull_request(0), 5)
    answer = decode_header(PullMessageResponseHeader, pulled)
    assert (answer.next_begin_offset, answer.min_offset, answer.max_offset) == (2, 0, 2)
    first, second = records(pulled)
    assert first.physical_offset == stored.position
    assert second.physical_offset == stored.position + first.size
    assert [first.queue_offset, second.queue_offset] == [0, 1]
    assert first.store_timestamp_ms == stored.store_timestamp
    assert first.store_host == host_bytes("127.0.0.1", 10911)[:4] + bytes(4)
    assert bytes(second.body) == b"a 0 1"
    assert first.check()


async def test_the_first_send_makes_the_topic_before_its_messages(
    broker: MemoryBroker, peer: Peer
) -> None:
    """The topic's entry comes before its first messages in the log, on every replica."""
    await peer.request(produce_request("a"), 5)
    kinds = [entry.kind for entry in broker.ledger.entries(1)][-2:]
    assert kinds == [17, 16]
    topic = broker.machine.topics.get("Orders")
    assert topic is not None
    assert topic.write_queue_nums == 8


async def test_a_new_leader_takes_sends_before_its_default_topic_is_applied(
    tmp_path: Path,
) -> None:
    """TBW102 comes before the send's topic in the log; no send is refused for being early."""
    async with served(tmp_path, auto=False) as (broker, peer):
        assert broker.machine.topics.get("TBW102") is None
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def produce() -> None:
                response = await peer.request(produce_request("a"), 5)
                assert response.code == Code.SUCCESS, response.remark

            # Behind the two topics, as a small batch waits for what is under way.
            await until(lambda: len(broker.ledger.uncommitted) == 2)
            broker.ledger.commit()
            await messages_wait(broker)
            broker.ledger.commit()
            broker.ledger.commit()


async def test_a_repeated_batch_is_answered_with_the_first_copys_offsets(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A repeated batch gets the first copy's offsets, also in another encoding."""
    first = decode_header(ProduceResponseHeader, await peer.request(produce_request("a"), 5))
    await peer.request(produce_request("b"), 5)
    again = decode_header(ProduceResponseHeader, await peer.request(produce_request("a"), 5))
    assert again.duplicate
    assert (again.position, again.offsets) == (first.position, first.offsets)
    assert broker.machine.queues.end("Orders", 0) == 4
    other = await peer.request(produce_request("a", runs=((0, 4),)), 5)
    assert other.code == Code.MESSAGE_ILLEGAL


async def test_other_messages_behind_a_known_first_key_are_never_called_stored(
    tmp_path: Path,
) -> None:
    """A send with a known first key and other bodies is refused, whether stored or on its way."""
    async with served(tmp_path, auto=False) as (broker, peer):
        broker.ledger.commit()
        codes: list[int] = []

        async def produce(runs: tuple[tuple[int, int], ...]) -> None:
            codes.append((await peer.request(produce_request("a", runs=runs), 5)).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce, ((0, 2), (3, 1)))
            await messages_wait(broker)
            nursery.start_soon(produce, ((0, 1), (3, 2)))
            await trio.sleep(0.05)
            broker.ledger.commit()
        await produce(((0, 1), (3, 2)))
        assert sorted(codes) == [Code.SUCCESS, Code.MESSAGE_ILLEGAL, Code.MESSAGE_ILLEGAL]


async def test_a_retry_that_overtakes_its_first_copy_waits_for_the_same_outcome(
    tmp_path: Path,
) -> None:
    """A retry that overtakes its first copy is answered when their entry is committed."""
    async with served(tmp_path, auto=False) as (broker, peer):
        broker.ledger.commit()
        answers: list[Command] = []

        async def produce() -> None:
            answers.append(await peer.request(produce_request("a"), 5))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(produce)
            await messages_wait(broker)
            await trio.sleep(0.05)
            assert not answers
            broker.ledger.commit()
        flags = sorted(decode_header(ProduceResponseHeader, each).duplicate for each in answers)
        assert flags == [False, True]
        assert len({str(answer.ext["offsets"]) for answer in answers}) == 1
        assert broker.machine.queues.end("Orders", 0) == 2


async def test_a_timed_send_is_known_when_it_is_repeated_after_its_time(tmp_path: Path) -> None:
    """The retry would no longer wait; the first copy, which did, is what it is answered with."""
    later_ms = 0

    def clock_ms() -> int:
        return 1_000_000 + later_ms

    async with served(tmp_path, clock_ms=clock_ms) as (broker, peer):
        request = send_request(i="UNIQ_KEY\x01k\x02TIMER_DELIVER_MS\x011005000\x02")
        first = await peer.request(request, 5)
        later_ms = 6000
        await until(lambda: broker.machine.queues.end("Orders", 1) == 1)
        broker.ledger.follow("n1")
        broker.ledger.lead()
        again = await peer.request(send_request(i=str(request.ext["i"])), 5)
        assert again.ext["msgId"] == first.ext["msgId"]
        assert broker.machine.queues.end("Orders", 1) == 1


async def test_lost_leadership_leaves_an_outcome_unknown_and_a_retry_safe(tmp_path: Path) -> None:
    """The offsets that were handed out are handed out again by the next leader."""
    async with served(tmp_path, auto=False) as (broker, peer):
        broker.ledger.commit()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def produce() -> None:
                response = await peer.request(produce_request("a"), 5)
                assert response.code == Code.SERVICE_NOT_AVAILABLE
                assert response.ext["outcome"] == "unknown"

            await messages_wait(broker)
            broker.ledger.follow("n1")
        refused = await peer.request(produce_request("a"), 5)
        assert refused.code == Code.SERVICE_NOT_AVAILABLE
        assert refused.remark == "not the leader; none is known"
        broker.ledger.lead()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def produce_again() -> None:
                response = await peer.request(produce_request("a"), 5)
                assert decode_header(ProduceResponseHeader, response).offsets == [(0, 0), (3, 0)]

            await messages_wait(broker)
            broker.ledger.commit()


@pytest.mark.parametrize(
    ("spoil", "code", "text"),
    [
        ({"runs": [[0, 2], [3, 2]]}, Code.MESSAGE_ILLEGAL, "runs of 4"),
        ({"runs": [[0, 2], [4, 1]]}, Code.MESSAGE_ILLEGAL, "queue id"),
        ({"runs": [[0, 2], [3, 99999]]}, Code.MESSAGE_ILLEGAL, "at most"),
        ({"topic": "Other"}, Code.MESSAGE_ILLEGAL, "topic"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.NO_PERMISSION, "belongs to"),
        ({"runs": "x"}, Code.SYSTEM_ERROR, "runs"),
    ],
)
async def test_a_malformed_batch_is_refused_and_makes_no_topic(
    broker: MemoryBroker, peer: Peer, spoil: dict[str, ExtValue], code: Code, text: str
) -> None:
    """The refusal names what is wrong; nothing is written."""
    request = produce_request("a")
    request.ext = dict(request.ext) | spoil
    response = await peer.request(request, 5)
    assert response.code == code
    assert text in (response.remark or "")
    assert broker.machine.topics.get("Orders") is None
    assert broker.machine.topics.get("Other") is None


async def test_a_batch_for_a_queue_that_is_not_there_is_refused(peer: Peer) -> None:
    """A topic made by its first send has eight queues here."""
    response = await peer.request(produce_request("a", runs=((8, 1),)), 5)
    assert response.code == Code.INVALID_PARAMETER
    assert "queue 8" in (response.remark or "")


async def test_a_stock_producer_gets_an_id_that_leads_to_its_message(peer: Peer) -> None:
    """`msgId` holds the store host and the position, from which the message can be viewed."""
    properties = "TAGS\x01TagA\x02KEYS\x01k1\x02WAIT\x01false"
    response = await peer.request(send_request(i=properties), 5)
    assert response.code == Code.SUCCESS, response.remark
    assert response.ext["TRACE_ON"] == "true"
    sent = decode_header(SendMessageResponseHeader, response)
    assert (sent.queue_id, sent.queue_offset) == (1, 0)
    _, _, position = offset_message_id_decode(sent.msg_id)
    viewed = await ask(peer, RequestCode.VIEW_MESSAGE_BY_ID, offset=position)
    (record,) = records(viewed)
    assert bytes(record.body) == b"hello"
    kept = properties_decode(record.properties)
    assert kept.pop("UNIQ_KEY")
    assert kept == {
        "TAGS": "TagA",
        "KEYS": "k1",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    nothing = await ask(peer, RequestCode.VIEW_MESSAGE_BY_ID, offset=position + 4)
    assert nothing.code == Code.SYSTEM_ERROR


async def test_a_stock_batch_gets_consecutive_offsets_and_keeps_each_items_key(peer: Peer) -> None:
    """A stock batch's messages get consecutive offsets and keep their own UNIQ_KEY."""
    items = [
        BatchItem(b"one", properties_encode({"UNIQ_KEY": "k1", "TAGS": "A"})),
        BatchItem(b"two", properties_encode({"UNIQ_KEY": "k2"}), flag=7),
    ]
    request = send_request(
        batch_encode(items), RequestCode.SEND_BATCH_MESSAGE, i="UNIQ_KEY\x01batch\x02WAIT\x01true"
    )
    response = await peer.request(request, 5)
    sent = decode_header(SendMessageResponseHeader, response)
    assert len(sent.msg_id.split(",")) == 2
    assert (sent.queue_offset, sent.batch_uniq_id) == (0, None)
    one, two = records(await peer.request(pull_request(1), 5))
    assert (one.queue_offset, two.queue_offset, two.flag) == (0, 1, 7)
    keys = [properties_decode(each.properties)["UNIQ_KEY"] for each in (one, two)]
    assert keys == ["k1", "k2"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"e": "99"}, Code.SYSTEM_ERROR),
        ({"b": "bad topic"}, Code.SYSTEM_ERROR),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, Code.NO_PERMISSION),
        ({"b": "%RETRY%nobody"}, Code.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"f": "4"}, Code.MESSAGE_ILLEGAL),
        ({"i": "TRAN_MSG\x01true\x02"}, Code.MESSAGE_ILLEGAL),
        ({"i": "DELAY\x01soon\x02"}, Code.MESSAGE_ILLEGAL),
        ({"i": "TIMER_DELAY_SEC\x013500000\x02"}, Code.MESSAGE_ILLEGAL),
        ({"i": "x\x01" + "y" * 33_000}, Code.MESSAGE_ILLEGAL),
        ({"g": "yesterday"}, Code.SYSTEM_ERROR),
    ],
)
async def test_a_send_that_can_not_be_taken_is_refused(
    peer: Peer, changed: dict[str, ExtValue], code: Code
) -> None:
    """A send that can't be taken is refused with the reference's error code."""
    response = await peer.request(send_request(**changed), 5)
    assert response.code == code, response.remark
    assert response.remark


async def test_a_body_above_the_limit_is_refused(tmp_path: Path) -> None:
    """`maxMessageSize` holds for every way to send."""
    config = BrokerConfig(max_message_size=100)
    async with served(tmp_path, config=config) as (_, peer):
        assert (await peer.request(send_request(b"x" * 101), 5)).code == Code.MESSAGE_ILLEGAL
        assert (await peer.request(send_request(b"x" * 100), 5)).code == Code.SUCCESS
        long_key = "k" * 120
        response = await peer.request(produce_request(long_key), 5)
        assert response.code == Code.MESSAGE_ILLEGAL
        assert "maxMessageSize" in (response.remark or "")


async def test_without_auto_creation_an_unknown_topic_is_refused(tmp_path: Path) -> None:
    """The refusal says how to make it; then it works."""
    config = BrokerConfig(auto_create_topic_enable=False)
    async with served(tmp_path, config=config) as (_, peer):
        refused = await peer.request(produce_request("a"), 5)
        assert refused.code == Code.TOPIC_NOT_EXIST
        made = await make_topic(peer, "Orders")
        assert made.code == Code.SUCCESS
        assert (await peer.request(produce_request("a"), 5)).code == Code.SUCCESS


async def test_a_broker_with_an_ipv6_address_stores_it(tmp_path: Path) -> None:
    """A broker with an IPv6 address stores it in 20 bytes, and in its message ids."""
    config = BrokerConfig(broker_ip1="::1")
    async with served(tmp_path, config) as (_, peer):
        sent = await peer.request(send_request(e="0"), 5)
        host, port, position = offset_message_id_decode(str(sent.ext["msgId"]))
        assert (host, port) == ("::1", 0)  # the port that the config says: any
        (record,) = records(await ask(peer, RequestCode.VIEW_MESSAGE_BY_ID, offset=position))
        assert (len(record.store_host), len(record.born_host)) == (20, 20)
        produced = await peer.request(produce_request("a", runs=((0, 2), (3, 1))), 5)
        assert decode_header(ProduceResponseHeader, produced).offsets == [(0, 1), (3, 0)]
        bodies = [bytes(each.body) for each in records(await peer.request(pull_request(0), 5))]
        assert bodies == [b"hello", b"a 0 0", b"a 0 1"]
        again = await peer.request(produce_request("a", runs=((0, 2), (3, 1))), 5)
        assert decode_header(ProduceResponseHeader, again).duplicate


async def test_a_topic_of_a_namespace_is_a_topic(broker: MemoryBroker, peer: Peer) -> None:
    """Clients put the namespace before the name: `ns%topic`, `%RETRY%ns%group`."""
    assert (await peer.request(send_request(b="ns%Orders"), 5)).code == Code.SUCCESS
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1", "ns%C", "ns%Orders"))
    assert broker.machine.topics.get("%RETRY%ns%C") is not None
    position = records(await peer.request(pull_request(1, topic="ns%Orders"), 5))[0]
    fields: dict[str, ExtValue] = {"group": "ns%C", "delayLevel": -1}
    back = await ask(
        peer,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=position.physical_offset,
        **fields,
    )
    assert back.code == Code.SUCCESS
    assert broker.machine.queues.end("%DLQ%ns%C", 0) == 1
