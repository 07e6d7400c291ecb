"""Consumers of a broker on a real socket: pulls, offsets, groups, retries, locks."""

from __future__ import annotations

from pathlib import Path

import trio

from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import (
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockBatchBody,
    LockBatchResponseBody,
    SubscriptionData,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import (
    properties_decode,
)
from mqbroker.testing import MemoryBroker, memory_broker, served, until
from mqbroker.testing.requests import (
    ask,
    commit,
    commit_request,
    heartbeat,
    make_topic,
    oneway,
    produce_request,
    pull_request,
    records,
    send_request,
)

Code = ResponseCode


async def test_a_held_pull_is_answered_when_its_message_comes(peer: Peer) -> None:
    """A held pull is answered when its message is committed, without polling."""
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


async def test_a_held_pull_ends_with_its_time_and_with_the_leadership(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A held pull ends with its time, finding nothing, or at once with the lead."""
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


async def test_a_pull_needs_a_topic_a_queue_and_a_subscription(peer: Peer) -> None:
    """A first pull may come before the heartbeat: it is told so, and the client tries again."""
    assert (await peer.request(pull_request(), 5)).code == Code.TOPIC_NOT_EXIST
    await make_topic(peer, "Orders")
    assert (await peer.request(pull_request(9), 5)).code == Code.SYSTEM_ERROR
    unknown = await peer.request(pull_request(sys_flag=0), 5)
    assert unknown.code == Code.SUBSCRIPTION_NOT_EXIST
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    assert (await peer.request(pull_request(sys_flag=0), 5)).code == Code.PULL_NOT_FOUND
    bad = await peer.request(pull_request(subscription=" || "), 5)
    assert bad.code == Code.SUBSCRIPTION_PARSE_FAILED


async def test_a_pull_that_is_ahead_of_its_heartbeat_gets_what_any_tag_could_want(
    peer: Peer,
) -> None:
    """A newer subscription is on its way: nothing is skipped by the older one, nobody waits."""
    await make_topic(peer, "Orders")
    await peer.request(produce_request("untagged", runs=[(0, 1)]), 5)
    subscription = SubscriptionData("Orders", "A", ["A"], [65], sub_version=4)
    data = ConsumerData("C", subscription_data_set=[subscription])
    await ask(peer, RequestCode.HEART_BEAT, encode_body(HeartbeatData("c1", [], [data])))

    known = await peer.request(pull_request(sys_flag=0, subVersion=4), 5)
    newer = await peer.request(pull_request(sys_flag=0, subVersion=5), 5)

    assert known.code == Code.PULL_RETRY_IMMEDIATELY
    assert [bytes(each.body) for each in records(newer)] == [b"untagged 0 0"]


async def test_offsets_of_a_group_are_committed_through_the_log(
    broker: MemoryBroker, peer: Peer
) -> None:
    """Two-way commits are answered when applied; one-way ones follow within a moment."""
    await peer.request(produce_request("a", runs=[(1, 9), (2, 3)]), 5)
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    key: dict[str, ExtValue] = {"consumerGroup": "C", "topic": "Orders", "queueId": 1}
    unset = await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **key, setZeroIfNotFound=False)
    assert unset.code == Code.QUERY_NOT_FOUND
    assert (await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **key)).ext["offset"] == 0
    assert await commit(peer, 7, 1) == Code.SUCCESS
    assert broker.machine.offsets.get("C", "Orders", 1) == 7
    peer.send_oneway(oneway(commit_request(9, 1)))
    await peer.request(pull_request(2, sys_flag=5, commitOffset=3), 5)
    await until(lambda: broker.machine.offsets.get("C", "Orders", 2) is not None)
    assert broker.machine.offsets.get("C", "Orders", 1) == 9
    assert await commit(peer, 7, 1, topic="No") == Code.TOPIC_NOT_EXIST


async def test_the_ends_of_a_queue_and_the_place_of_a_time(peer: Peer) -> None:
    """Maximum offsets are exclusive; LOWER and UPPER bracket a time."""
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


async def test_a_message_sent_back_comes_again_later_and_in_the_end_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    """A message that is sent back comes again after level 3, 4, ..., with its first id."""
    later_ms = 0

    def clock_ms() -> int:
        return int(trio.current_time() * 1000) + later_ms

    async def send_back(position: int) -> Command:
        fields: dict[str, ExtValue] = {"group": "C", "delayLevel": 0, "maxReconsumeTimes": 2}
        return await ask(peer, RequestCode.CONSUMER_SEND_MSG_BACK, offset=position, **fields)

    async def retried(tries: int) -> None:
        await until(lambda: ends("%RETRY%C", 0) == tries)

    async with served(tmp_path, clock_ms=clock_ms) as (broker, peer):
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        await peer.request(produce_request("a"), 5)
        (first, _) = records(await peer.request(pull_request(0), 5))
        position = first.physical_offset
        ends = broker.machine.queues.end
        for tries, delay_ms in ((1, 10_000), (2, 30_000)):
            assert (await send_back(position)).code == Code.SUCCESS
            assert ends("SCHEDULE_TOPIC_XXXX", tries + 1) == 1
            later_ms += delay_ms - 5000
            nothing = await peer.request(pull_request(0, tries - 1, topic="%RETRY%C"), 5)
            assert nothing.code == Code.PULL_NOT_FOUND
            later_ms += 5000
            await retried(tries)
            retry = await peer.request(pull_request(0, tries - 1, topic="%RETRY%C"), 5)
            (record,) = records(retry)
            assert record.reconsume_times == tries
            properties = properties_decode(record.properties)
            assert properties["RETRY_TOPIC"] == "Orders"
            assert properties["ORIGIN_MESSAGE_ID"].endswith(f"{first.physical_offset:X}")
            position = record.physical_offset
        await send_back(position)
        assert ends("%DLQ%C", 0) == 1
        assert (await send_back(3)).code == Code.SYSTEM_ERROR


async def test_our_consumers_say_in_milliseconds_when_a_message_is_to_come_again(
    broker: MemoryBroker, peer: Peer
) -> None:
    """Our consumers send back with milliseconds; dead letters wait for none."""

    async def send_back(position: int, delay_ms: int, times_max: int = 9) -> Command:
        fields: dict[str, ExtValue] = {"group": "C", "delayLevel": 0, "delayMillis": delay_ms}
        fields["maxReconsumeTimes"] = times_max
        return await ask(peer, RequestCode.CONSUMER_SEND_MSG_BACK, offset=position, **fields)

    async def retried(tries: int) -> None:
        await until(lambda: broker.machine.queues.end("%RETRY%C", 0) == tries)

    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    await peer.request(produce_request("a"), 5)
    (first, _) = records(await peer.request(pull_request(0), 5))
    position = first.physical_offset
    for tries in (1, 2):
        assert (await send_back(position, 20)).code == Code.SUCCESS
        await retried(tries)
        retry = await peer.request(pull_request(0, tries - 1, topic="%RETRY%C"), 5)
        (record,) = records(retry)
        assert record.reconsume_times == tries
        position = record.physical_offset
    too_long = await send_back(position, 41 * 86_400_000)
    assert too_long.code == Code.MESSAGE_ILLEGAL
    assert (await send_back(position, 20, times_max=2)).code == Code.SUCCESS
    assert broker.machine.queues.end("%DLQ%C", 0) == 1


async def test_a_stock_consumer_that_sends_back_by_itself_is_delayed_too(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A send to the retry topic with DELAY is delayed; after all tries it is a dead letter."""
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
    fields: dict[str, ExtValue] = {"b": "%RETRY%C", "e": "0", "i": "DELAY\x013\x02", "l": "2"}
    sent = await peer.request(send_request(j="1", **fields), 5)
    assert sent.code == Code.SUCCESS, sent.remark
    assert (sent.ext["queueId"], sent.ext["queueOffset"]) == ("0", "0")
    assert broker.machine.queues.end("SCHEDULE_TOPIC_XXXX", 2) == 1
    assert broker.machine.queues.end("%RETRY%C", 0) == 0
    await peer.request(send_request(j="2", **fields), 5)
    assert broker.machine.queues.end("%DLQ%C", 0) == 1
    (dead,) = records(await peer.request(pull_request(0, topic="%DLQ%C"), 5))
    assert "DELAY" not in properties_decode(dead.properties)


async def test_orderly_consumers_lock_queues(peer: Peer) -> None:
    """A second client gets the queues that are free, and all after the first one's unlock."""
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


async def test_a_lock_lasts_a_minute_whatever_the_wall_clock_does(tmp_path: Path) -> None:
    """A wall clock that jumps ahead ends no lock, and one that falls back prolongs none."""
    later_s = ahead_ms = 0
    async with served(
        tmp_path,
        clock_ms=lambda: int(trio.current_time() * 1000) + ahead_ms,
        clock_s=lambda: trio.current_time() + later_s,
    ) as (_, peer):
        await make_topic(peer, "Orders")
        queue = MessageQueue("Orders", "broker-a", 0)

        async def locked(client_id: str) -> bool:
            body = encode_body(LockBatchBody("C", client_id, [queue]))
            response = await ask(peer, RequestCode.LOCK_BATCH_MQ, body)
            return bool(decode_body(LockBatchResponseBody, response.payload).lock_ok_mq_set)

        assert await locked("dead")
        ahead_ms = 600_000
        assert not await locked("next")
        await peer.request(produce_request("a"), 5)  # the broker's time has seen that clock
        ahead_ms = 0
        later_s = 50
        assert not await locked("next")
        later_s = 61
        assert await locked("next")


async def test_who_has_lost_a_lock_can_neither_commit_nor_send_back(tmp_path: Path) -> None:
    """A member of ours is refused by its token; a stock member is answered and ignored."""
    later_s = 0

    def clock_s() -> float:
        return trio.current_time() + later_s

    async with served(tmp_path, clock_s=clock_s) as (broker, peer):
        await make_topic(peer, "Orders")
        await peer.request(produce_request("a"), 5)
        (first, _) = records(await peer.request(pull_request(0), 5))
        queue = MessageQueue("Orders", "broker-a", 0)

        async def lock(client_id: str, *, asks: bool = True) -> list[int] | None:
            body = encode_body(LockBatchBody("C", client_id, [queue], asks or None))
            response = await ask(peer, RequestCode.LOCK_BATCH_MQ, body)
            return decode_body(LockBatchResponseBody, response.payload).lock_tokens

        async def committed(offset: int, token: int | None) -> int:
            return await commit(peer, offset, **({} if token is None else {"lockToken": token}))

        async def send_back(token: int) -> int:
            fields: dict[str, ExtValue] = {"group": "C", "delayLevel": -1, "lockToken": token}
            code = RequestCode.CONSUMER_SEND_MSG_BACK
            return (await ask(peer, code, offset=first.physical_offset, **fields)).code

        await ask(peer, RequestCode.HEART_BEAT, heartbeat("old"))
        (old,) = await lock("old") or []
        assert await lock("old") == [old]
        assert await lock("old", asks=False) is None
        index = broker.ledger.status.last_index
        assert await lock("new") == []
        assert broker.ledger.status.last_index == index, "what is refused is no entry"
        assert (await committed(1, old), await committed(1, None)) == (Code.SUCCESS, Code.SUCCESS)
        later_s += 61
        assert await committed(1, old) == Code.SUCCESS, "late, and nobody has taken it"
        (new,) = await lock("new") or []
        assert new > old
        assert (await committed(2, old), await send_back(old)) == (Code.NOT_LOCK_OWNER,) * 2
        assert await committed(2, None) == Code.SUCCESS
        assert broker.machine.offsets.get("C", "Orders", 0) == 1
        assert broker.machine.queues.end("%DLQ%C", 0) == 0
        assert (await committed(2, new), await send_back(new)) == (Code.SUCCESS, Code.SUCCESS)
        assert broker.machine.offsets.get("C", "Orders", 0) == 2
        body = encode_body(LockBatchBody("C", "new", [queue]))
        await ask(peer, RequestCode.UNLOCK_BATCH_MQ, body)
        assert await committed(1, new) == Code.NOT_LOCK_OWNER
        assert (await lock("old") or [0])[0] > new
