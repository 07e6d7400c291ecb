"""A broker on a real socket and a ledger in memory: what producers, consumers and tools get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from broker.config import BrokerConfig
from broker.testing import MemoryBroker, memory_broker
from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import (
    ConsumerConnection,
    ConsumerData,
    ConsumerIdList,
    ConsumeStats,
    HeartbeatData,
    LockBatchBody,
    LockBatchResponseBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigWrapper,
    TopicStats,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import FLAG_ONEWAY, Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import (
    ProduceHeader,
    ProduceResponseHeader,
    PullMessageHeader,
    PullMessageResponseHeader,
    SendMessageResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import (
    BatchItem,
    batch_encode,
    host_bytes,
    offset_message_id_decode,
    properties_decode,
    properties_encode,
)
from dledger.remoting.record import Record, encode_record, walk

Code = ResponseCode
HOST = host_bytes("127.0.0.1", 1)


@asynccontextmanager
async def served(
    directory: Path, *, auto: bool = True, config: BrokerConfig | None = None
) -> AsyncIterator[tuple[MemoryBroker, Peer]]:
    async with (
        memory_broker(directory, config, auto=auto) as broker,
        connect_peer("127.0.0.1", broker.port) as peer,
    ):
        yield broker, peer


async def ask(peer: Peer, code: int, content: bytes | None = None, /, **ext: ExtValue) -> Command:
    return await peer.request(Command(code, ext, content or b""), 5.0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another connection's request brings about."""
    with trio.fail_after(2):
        while not condition():  # noqa: ASYNC110 -- nothing to be woken by
            await trio.sleep(0.005)


def produce_request(
    key: str, topic: str = "Orders", runs: tuple[tuple[int, int], ...] = ((0, 2), (3, 1))
) -> Command:
    body = bytearray()
    for queue_id, count in runs:
        for number in range(count):
            body += encode_record(
                topic=topic.encode(),
                queue_id=queue_id,
                body=f"{key} {queue_id} {number}".encode(),
                properties=properties_encode({"UNIQ_KEY": f"{key}-{queue_id}-{number}"}),
                born_timestamp_ms=1,
                born_host=HOST,
            )
    header = ProduceHeader(topic=topic, producer_group="P", runs=list(runs))
    return Command(RequestCode.PRODUCE, encode_header(header), bytes(body))


def send_request(
    body: bytes = b"hello", code: int = RequestCode.SEND_MESSAGE_V2, /, **changed: ExtValue
) -> Command:
    ext: dict[str, ExtValue] = dict(
        zip("abcdefghi", ("P", "Orders", "TBW102", "4", "1", "0", "5", "0", ""), strict=True)
    )
    return Command(code, ext | changed, body, encoding=HeaderEncoding.JSON)


def pull_request(
    queue_id: int = 0, offset: int = 0, sys_flag: int = 4, **changed: ExtValue
) -> Command:
    header = PullMessageHeader(
        consumer_group="C",
        topic="Orders",
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=sys_flag,
        commit_offset=0,
        suspend_timeout_millis=3000,
        sub_version=0,
        subscription="*" if sys_flag & 4 else None,
    )
    return Command(RequestCode.PULL_MESSAGE, encode_header(header) | changed)


def records(response: Command) -> list[Record]:
    body = memoryview(response.payload)
    return [Record(body[start:]) for start in walk(body)]


def heartbeat(client_id: str, group: str = "C", topic: str = "Orders") -> bytes:
    data = ConsumerData(group, subscription_data_set=[SubscriptionData(topic)])
    return encode_body(HeartbeatData(client_id, [], [data]))


async def test_a_produced_batch_can_be_pulled_byte_for_byte(tmp_path: Path) -> None:
    """Queue offsets, positions, store time and host are the broker's, all else the producer's."""
    async with served(tmp_path) as (_, peer):
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


async def test_the_first_send_makes_the_topic_before_its_messages(tmp_path: Path) -> None:
    """In the log the topic's entry comes first, so no replica ever has messages without it."""
    async with served(tmp_path) as (broker, peer):
        await peer.request(produce_request("a"), 5)
        kinds = [entry.kind for entry in broker.ledger.entries(1)][-2:]
        assert kinds == [17, 16]
        topic = broker.machine.topics.get("Orders")
        assert topic is not None
        assert topic.write_queue_nums == 8


async def test_a_repeated_batch_is_answered_with_the_first_copys_offsets(tmp_path: Path) -> None:
    """Also when the topic has moved on, and over another encoding of the same send."""
    async with served(tmp_path) as (broker, peer):
        first = decode_header(ProduceResponseHeader, await peer.request(produce_request("a"), 5))
        await peer.request(produce_request("b"), 5)
        again = decode_header(ProduceResponseHeader, await peer.request(produce_request("a"), 5))
        assert again.duplicate
        assert (again.position, again.offsets) == (first.position, first.offsets)
        assert broker.machine.queues.end("Orders", 0) == 4
        other = await peer.request(produce_request("a", runs=((0, 4),)), 5)
        assert other.code == Code.MESSAGE_ILLEGAL


async def test_a_retry_that_overtakes_its_first_copy_waits_for_the_same_outcome(
    tmp_path: Path,
) -> None:
    """Nothing is answered before the entry is committed, and there is one entry."""
    async with served(tmp_path, auto=False) as (broker, peer):
        broker.ledger.commit()
        answers: list[Command] = []

        async def produce() -> None:
            answers.append(await peer.request(produce_request("a"), 5))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            nursery.start_soon(produce)
            await trio.sleep(0.05)
            assert not answers
            broker.ledger.commit()
        flags = sorted(decode_header(ProduceResponseHeader, each).duplicate for each in answers)
        assert flags == [False, True]
        assert len({str(answer.ext["offsets"]) for answer in answers}) == 1
        assert broker.machine.queues.end("Orders", 0) == 2


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

            await trio.sleep(0.05)
            broker.ledger.follow("n1")
        refused = await peer.request(produce_request("a"), 5)
        assert refused.code == Code.SERVICE_NOT_AVAILABLE
        assert refused.remark == "not the leader"
        broker.ledger.lead()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def produce_again() -> None:
                response = await peer.request(produce_request("a"), 5)
                assert decode_header(ProduceResponseHeader, response).offsets == [(0, 0), (3, 0)]

            await trio.sleep(0.05)
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
    tmp_path: Path, spoil: dict[str, ExtValue], code: Code, text: str
) -> None:
    """The refusal names what is wrong; nothing is written."""
    async with served(tmp_path) as (broker, peer):
        request = produce_request("a")
        request.ext = dict(request.ext) | spoil
        response = await peer.request(request, 5)
        assert response.code == code
        assert text in (response.remark or "")
        assert broker.machine.topics.get("Orders") is None
        assert broker.machine.topics.get("Other") is None


async def test_a_batch_for_a_queue_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A topic made by its first send has eight queues here."""
    async with served(tmp_path) as (_, peer):
        response = await peer.request(produce_request("a", runs=((8, 1),)), 5)
        assert response.code == Code.SYSTEM_ERROR
        assert "queue 8" in (response.remark or "")


async def test_a_stock_producer_gets_an_id_that_leads_to_its_message(tmp_path: Path) -> None:
    """`msgId` holds the store host and the position, from which the message can be viewed."""
    async with served(tmp_path) as (_, peer):
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
        assert kept == {"TAGS": "TagA", "KEYS": "k1", "CLUSTER": "DefaultCluster"}
        nothing = await ask(peer, RequestCode.VIEW_MESSAGE_BY_ID, offset=position + 4)
        assert nothing.code == Code.SYSTEM_ERROR


async def test_a_stock_batch_gets_consecutive_offsets_and_keeps_each_items_key(
    tmp_path: Path,
) -> None:
    """The batch's own UNIQ_KEY must not replace those of its messages."""
    items = [
        BatchItem(b"one", properties_encode({"UNIQ_KEY": "k1", "TAGS": "A"})),
        BatchItem(b"two", properties_encode({"UNIQ_KEY": "k2"}), flag=7),
    ]
    request = send_request(
        batch_encode(items), RequestCode.SEND_BATCH_MESSAGE, i="UNIQ_KEY\x01batch\x02WAIT\x01true"
    )
    async with served(tmp_path) as (_, peer):
        response = await peer.request(request, 5)
        sent = decode_header(SendMessageResponseHeader, response)
        assert len(sent.msg_id.split(",")) == 2
        assert (sent.queue_offset, sent.batch_uniq_id) == (0, "batch")
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
        ({"f": "4"}, Code.NO_PERMISSION),
        ({"i": "TRAN_MSG\x01true\x02"}, Code.NO_PERMISSION),
        ({"i": "DELAY\x013\x02"}, Code.MESSAGE_ILLEGAL),
        ({"i": "x\x01" + "y" * 33_000}, Code.MESSAGE_ILLEGAL),
        ({"g": "yesterday"}, Code.SYSTEM_ERROR),
    ],
)
async def test_a_send_that_can_not_be_taken_is_refused(
    tmp_path: Path, changed: dict[str, ExtValue], code: Code
) -> None:
    """With the error codes of the reference."""
    async with served(tmp_path) as (_, peer):
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


async def make_topic(peer: Peer, topic: str, queues: int = 4) -> Command:
    return await ask(
        peer,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=topic,
        defaultTopic="TBW102",
        readQueueNums=queues,
        writeQueueNums=queues,
        perm=6,
        topicFilterType="SINGLE_TAG",
        order=False,
    )


async def test_a_held_pull_is_answered_when_its_message_comes(tmp_path: Path) -> None:
    """No polling: the answer leaves with the message's commit."""
    async with served(tmp_path) as (_, peer):
        await make_topic(peer, "Orders")
        answers: list[Command] = []
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def pull() -> None:
                answers.append(await peer.request(pull_request(sys_flag=6), 5))

            await trio.sleep(0.05)
            assert not answers
            await peer.request(produce_request("a"), 5)
        assert answers[0].code == Code.SUCCESS
        assert [bytes(each.body) for each in records(answers[0])] == [b"a 0 0", b"a 0 1"]


async def test_a_held_pull_ends_with_its_time_and_with_the_leadership(tmp_path: Path) -> None:
    """Time up means "nothing found"; a lost leadership sends the client elsewhere at once."""
    async with served(tmp_path) as (broker, peer):
        await make_topic(peer, "Orders")
        short = pull_request(sys_flag=6, suspendTimeoutMillis=100)
        assert (await peer.request(short, 5)).code == Code.PULL_NOT_FOUND
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def pull() -> None:
                response = await peer.request(pull_request(sys_flag=6), 5)
                assert response.code == Code.SERVICE_NOT_AVAILABLE

            await trio.sleep(0.05)
            broker.ledger.follow("n1")


async def test_a_pull_needs_a_topic_a_queue_and_a_subscription(tmp_path: Path) -> None:
    """A first pull may come before the heartbeat: it is told so, and the client tries again."""
    async with served(tmp_path) as (_, peer):
        assert (await peer.request(pull_request(), 5)).code == Code.TOPIC_NOT_EXIST
        await make_topic(peer, "Orders")
        assert (await peer.request(pull_request(9), 5)).code == Code.SYSTEM_ERROR
        unknown = await peer.request(pull_request(sys_flag=0), 5)
        assert unknown.code == Code.SUBSCRIPTION_NOT_EXIST
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        assert (await peer.request(pull_request(sys_flag=0), 5)).code == Code.PULL_NOT_FOUND
        newer = await peer.request(pull_request(sys_flag=0, subVersion=5), 5)
        assert newer.code == Code.SUBSCRIPTION_NOT_LATEST
        bad = await peer.request(pull_request(subscription=" || "), 5)
        assert bad.code == Code.SUBSCRIPTION_PARSE_FAILED


async def test_offsets_of_a_group_are_committed_through_the_log(tmp_path: Path) -> None:
    """Two-way commits are answered when applied; one-way ones follow within a moment."""
    async with served(tmp_path) as (broker, peer):
        await make_topic(peer, "Orders")
        key: dict[str, ExtValue] = {"consumerGroup": "C", "topic": "Orders", "queueId": 1}
        unset = await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **key, setZeroIfNotFound=False)
        assert unset.code == Code.QUERY_NOT_FOUND
        assert (await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **key)).ext["offset"] == 0
        done = await ask(peer, RequestCode.UPDATE_CONSUMER_OFFSET, **key, commitOffset=7)
        assert done.code == Code.SUCCESS
        assert broker.machine.offsets.get("C", "Orders", 1) == 7
        oneway = Command(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**key, "commitOffset": 9}, flag=FLAG_ONEWAY
        )
        peer.send_oneway(oneway)
        await peer.request(pull_request(2, sys_flag=5, commitOffset=3), 5)
        await until(lambda: broker.machine.offsets.get("C", "Orders", 2) is not None)
        assert broker.machine.offsets.get("C", "Orders", 1) == 9
        lost = await ask(
            peer, RequestCode.UPDATE_CONSUMER_OFFSET, **(key | {"topic": "No"}), commitOffset=7
        )
        assert lost.code == Code.TOPIC_NOT_EXIST


async def test_the_ends_of_a_queue_and_the_place_of_a_time(tmp_path: Path) -> None:
    """Maximum offsets are exclusive; LOWER and UPPER bracket a time."""
    async with served(tmp_path) as (_, peer):
        await peer.request(produce_request("a"), 5)
        sent = await peer.request(produce_request("b"), 5)
        late = int(str(sent.ext["storeTimestamp"]))
        queue: dict[str, ExtValue] = {"topic": "Orders", "queueId": 0}
        assert (await ask(peer, RequestCode.GET_MAX_OFFSET, **queue)).ext["offset"] == 4
        assert (await ask(peer, RequestCode.GET_MIN_OFFSET, **queue)).ext["offset"] == 0
        search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        assert (await ask(peer, search, **queue, timestamp=0)).ext["offset"] == 0
        assert (await ask(peer, search, **queue, timestamp=late + 1)).ext["offset"] == 4
        upper = await ask(peer, search, **queue, timestamp=late, boundaryType="upper")
        assert upper.ext["offset"] == 3
        earliest = await ask(peer, RequestCode.GET_EARLIEST_MSG_STORETIME, **queue)
        assert int(str(earliest.ext["timestamp"])) <= late
        empty = await ask(peer, RequestCode.GET_EARLIEST_MSG_STORETIME, topic="Orders", queueId=5)
        assert empty.ext["timestamp"] == -1


async def test_members_of_a_group_hear_of_each_other(tmp_path: Path) -> None:
    """Joining, leaving and a closed connection each send every member a notice."""
    async with memory_broker(tmp_path) as broker:
        notices: list[str] = []

        def on_request(request: Command) -> None:
            assert request.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            notices.append(str(request.ext["consumerGroup"]))

        async def noticed(count: int) -> None:
            await until(lambda: len(notices) == count)

        async with connect_peer("127.0.0.1", broker.port, on_request=on_request) as first:
            await ask(first, RequestCode.HEART_BEAT, heartbeat("c1"))
            await noticed(1)
            async with connect_peer("127.0.0.1", broker.port) as second:
                await ask(second, RequestCode.HEART_BEAT, heartbeat("c2"))
                await noticed(2)
                members = await ask(
                    first, RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="C"
                )
                ids = decode_body(ConsumerIdList, members.payload).consumer_id_list
                assert ids == ["c1", "c2"]
            await noticed(3)
            await ask(first, RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="C")
            nobody = await ask(first, RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup="C")
            assert nobody.code == Code.SYSTEM_ERROR
        assert broker.machine.groups.get("C") is not None
        assert broker.machine.topics.get("%RETRY%C") is not None


async def test_a_message_sent_back_comes_again_and_in_the_end_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    """Named by its position; the copy remembers its topic, its first id and its tries."""
    async with served(tmp_path) as (broker, peer):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        await peer.request(produce_request("a"), 5)
        (first, _) = records(await peer.request(pull_request(0), 5))
        position = first.physical_offset
        for tries in (1, 2):
            back = await ask(
                peer,
                RequestCode.CONSUMER_SEND_MSG_BACK,
                offset=position,
                group="C",
                delayLevel=0,
                maxReconsumeTimes=2,
            )
            assert back.code == Code.SUCCESS, back.remark
            retry = await peer.request(pull_request(0, tries - 1, topic="%RETRY%C"), 5)
            (record,) = records(retry)
            assert record.reconsume_times == tries
            assert properties_decode(record.properties)["RETRY_TOPIC"] == "Orders"
            position = record.physical_offset
        await ask(
            peer,
            RequestCode.CONSUMER_SEND_MSG_BACK,
            offset=position,
            group="C",
            delayLevel=0,
            maxReconsumeTimes=2,
        )
        assert broker.machine.queues.end("%DLQ%C", 0) == 1
        wrong = await ask(
            peer, RequestCode.CONSUMER_SEND_MSG_BACK, offset=3, group="C", delayLevel=0
        )
        assert wrong.code == Code.SYSTEM_ERROR


async def test_orderly_consumers_lock_queues(tmp_path: Path) -> None:
    """A second client gets those that are free, and all after they are given up."""
    async with served(tmp_path) as (_, peer):
        await make_topic(peer, "Orders")
        queues = [MessageQueue("Orders", "broker-a", number) for number in (0, 1, 7)]

        async def lock(client_id: str, *wanted: MessageQueue) -> list[int]:
            body = encode_body(LockBatchBody("C", client_id, list(wanted)))
            response = await ask(peer, RequestCode.LOCK_BATCH_MQ, body)
            granted = decode_body(LockBatchResponseBody, response.payload).lock_ok_mq_set
            return [queue.queue_id for queue in granted]

        assert await lock("c1", queues[0], queues[2]) == [0]
        assert await lock("c2", *queues) == [1]
        body = encode_body(LockBatchBody("C", "c1", queues))
        assert (await ask(peer, RequestCode.UNLOCK_BATCH_MQ, body)).code == Code.SUCCESS
        assert await lock("c2", *queues) == [0, 1]


async def test_tools_see_topics_queues_and_groups(tmp_path: Path) -> None:
    """What mqadmin's topicStatus, consumerProgress and consumerConnection ask for."""
    async with served(tmp_path) as (_, peer):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        await peer.request(produce_request("a"), 5)
        await ask(
            peer,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="C",
            topic="Orders",
            queueId=0,
            commitOffset=1,
        )
        stats = await ask(peer, RequestCode.GET_TOPIC_STATS_INFO, topic="Orders")
        table = decode_body(TopicStats, stats.payload).offset_table
        assert table[MessageQueue("Orders", "broker-a", 0)].max_offset == 2
        assert len(table) == 8
        progress = await ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup="C")
        offsets = decode_body(ConsumeStats, progress.payload).offset_table
        queue = offsets[MessageQueue("Orders", "broker-a", 0)]
        assert (queue.broker_offset, queue.consumer_offset) == (2, 1)
        clients = await ask(peer, RequestCode.GET_CONSUMER_CONNECTION_LIST, consumerGroup="C")
        (client,) = decode_body(ConsumerConnection, clients.payload).connection_set
        assert client.client_id == "c1"
        who = await ask(peer, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="Orders")
        assert b'"C"' in bytes(who.payload)
        topics = await ask(peer, RequestCode.GET_ALL_TOPIC_CONFIG)
        names = decode_body(TopicConfigWrapper, topics.payload).topic_config_table
        assert set(names) == {"TBW102", "%RETRY%C", "Orders"}
        one = await ask(peer, RequestCode.GET_TOPIC_CONFIG, topic="Orders")
        assert decode_body(TopicConfig, one.payload).read_queue_nums == 8
        runtime = await ask(peer, RequestCode.GET_BROKER_RUNTIME_INFO)
        assert b"getTransferedTps" in bytes(runtime.payload)
        settings = await ask(peer, RequestCode.GET_BROKER_CONFIG)
        assert b"brokerName=broker-a\n" in bytes(settings.payload)


async def test_a_deleted_topic_is_gone_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    """Made again by a send it starts from offset 0."""
    async with served(tmp_path) as (broker, peer):
        await peer.request(produce_request("a"), 5)
        gone = await ask(peer, RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
        assert gone.code == Code.SUCCESS
        assert (await peer.request(pull_request(0), 5)).code == Code.TOPIC_NOT_EXIST
        again = await peer.request(produce_request("b"), 5)
        assert decode_header(ProduceResponseHeader, again).offsets == [(0, 0), (3, 0)]
        assert broker.machine.queues.end("Orders", 0) == 2


async def test_a_follower_answers_what_needs_no_leader_and_names_the_leader(
    tmp_path: Path,
) -> None:
    """Heartbeats, member lists and GROUP_INFO are answered everywhere, all else with code 14."""
    config = BrokerConfig(
        d_leger_peers="n0-127.0.0.1:1;n1-127.0.0.1:2",
        group_client_addrs="n0-127.0.0.1:10911;n1-127.0.0.1:10912",
    )
    async with served(tmp_path, config=config) as (broker, peer):
        broker.ledger.follow("n1")
        refused = await peer.request(pull_request(0), 5)
        assert refused.code == Code.SERVICE_NOT_AVAILABLE
        assert refused.ext["leaderAddr"] == "127.0.0.1:10912"
        assert (await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))).code == Code.SUCCESS
        info = await ask(peer, RequestCode.GROUP_INFO)
        assert (info.ext["role"], info.ext["leaderId"]) == ("follower", "n1")
        assert info.ext["members"] == [["n0", "127.0.0.1:10911"], ["n1", "127.0.0.1:10912"]]
        broker.ledger.lead()
        info = await ask(peer, RequestCode.GROUP_INFO)
        assert (info.ext["role"], info.ext["leaderAddr"]) == ("leader", "127.0.0.1:10911")
        assert broker.machine.groups.get("C") is not None


async def test_an_unknown_code_and_a_bad_header_are_answered(tmp_path: Path) -> None:
    """The connection stays; a one-way request gets no answer at all."""
    async with served(tmp_path) as (_, peer):
        unknown = await ask(peer, 31_337)
        assert unknown.code == Code.REQUEST_CODE_NOT_SUPPORTED
        bad = await ask(peer, RequestCode.PULL_MESSAGE, topic="Orders")
        assert bad.code == Code.SYSTEM_ERROR
        assert "consumerGroup" in (bad.remark or "")
        peer.send_oneway(Command(31_337))
        peer.send_oneway(send_request())
        assert (await ask(peer, RequestCode.GROUP_INFO)).code == Code.SUCCESS
