"""Resets of groups, commits that count, and questions of tools to consumers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import (
    ConsumerStatusBody,
    ConsumerStatusFromClientBody,
    Dialect,
    ResetOffsetBody,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import host_bytes, offset_message_id
from dledger.remoting.record import Record
from mqbroker.limits import RELAY_S
from mqbroker.requests.groups.readers import Readers
from mqbroker.state.groups.locks import QueueKey
from mqbroker.testing import MemoryBroker, memory_broker
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
)

Code = ResponseCode
KEY = QueueKey("C", "Orders", 0)


@asynccontextmanager
async def served(
    directory: Path, on_request: Callable[[Command], Command | None] | None = None
) -> AsyncIterator[tuple[MemoryBroker, Peer, Peer]]:
    """A broker with 6 messages in queue 0; a consumer that answers requests, and a tool."""
    async with (
        memory_broker(directory) as broker,
        connect_peer("127.0.0.1", broker.port, on_request=on_request) as consumer,
        connect_peer("127.0.0.1", broker.port) as tool,
    ):
        await make_topic(tool)
        for number in range(3):
            await tool.request(produce_request(f"m{number}"), 5)
        await ask(consumer, RequestCode.HEART_BEAT, heartbeat("c1"))
        yield broker, consumer, tool


async def committed(peer: Peer) -> ExtValue:
    key: dict[str, ExtValue] = {"consumerGroup": "C", "topic": "Orders", "queueId": 0}
    return (await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **key)).ext["offset"]


async def committed_by(peer: Peer, offset: int, **sought_back: ExtValue) -> None:
    """A commit that is answered with success."""
    assert await commit(peer, offset, **sought_back) == Code.SUCCESS


def reset_request(**changed: ExtValue) -> Command:
    ext: dict[str, ExtValue] = {"topic": "Orders", "group": "C", "timestamp": 0, "isForce": True}
    return Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext | changed)


def counts(readers: Readers, offset: int, connection_id: int, *, is_consumer: bool = True) -> bool:
    """Whether a commit counts when the group is at 100."""
    return readers.counts(
        KEY, offset, committed=100, connection_id=connection_id, is_consumer=is_consumer
    )


def test_only_the_last_reader_or_a_tool_moves_a_group_back() -> None:
    """A commit below the offset counts only from the queue's last reader or from a tool."""
    readers = Readers()
    assert not counts(readers, 50, 1)  # a new leadership: it will pull, and commit again
    assert readers.pulled(KEY, 1, 100) is None
    assert counts(readers, 50, 1)
    readers.pulled(KEY, 2, 100)
    assert not counts(readers, 99, 1)
    assert counts(readers, 99, 2)
    assert counts(readers, 101, 1)
    assert counts(readers, 0, 3, is_consumer=False)


def test_after_a_reset_commits_count_when_the_reader_has_followed() -> None:
    """A reader's commits count again after a reset once it has been told the new place."""
    readers = Readers()
    readers.pulled(KEY, 1, 100)
    readers.reset(KEY, 20)
    assert not counts(readers, 110, 1)
    assert counts(readers, 20, 1)
    assert readers.pulled(KEY, 1, 110) == 20
    assert not counts(readers, 110, 1)
    assert readers.pulled(KEY, 1, 20) is None
    assert counts(readers, 30, 1)
    readers.reset(KEY, 20)
    assert readers.pulled(KEY, 1, 40) == 20
    assert readers.pulled(KEY, 1, 40) is None
    assert counts(readers, 110, 1)


async def test_a_late_commit_of_a_member_that_lost_the_queue_changes_nothing(
    tmp_path: Path,
) -> None:
    """The new reader has come further; the old one is answered as usual."""
    async with (
        served(tmp_path) as (broker, old, _),
        connect_peer("127.0.0.1", broker.port) as new,
    ):
        await ask(new, RequestCode.HEART_BEAT, heartbeat("c2"))
        await old.request(pull_request(0, 0), 5)
        await committed_by(old, 2)
        await new.request(pull_request(0, 2), 5)
        await committed_by(new, 4)
        old.send_oneway(oneway(commit_request(3)))
        await committed_by(old, 3)
        assert await committed(old) == 4
        new.send_oneway(oneway(commit_request(1)))  # it sought back
        assert await committed(new) == 1


async def test_of_members_that_both_read_a_queue_none_takes_the_group_back(tmp_path: Path) -> None:
    """A reader that goes back takes no group back while another member reads the queue."""
    async with (
        served(tmp_path) as (broker, old, _),
        connect_peer("127.0.0.1", broker.port) as new,
    ):
        await ask(new, RequestCode.HEART_BEAT, heartbeat("c2"))
        await old.request(pull_request(0, 0), 5)
        await new.request(pull_request(0, 0), 5)
        await committed_by(new, 4, soughtBack=False)
        await old.request(pull_request(0, 2), 5)
        await committed_by(old, 2, soughtBack=False)
        assert await committed(old) == 4
        await committed_by(new, 1, soughtBack=True)
        assert await committed(old) == 4, "the other one pulled last"
        await committed_by(old, 1, soughtBack=True)
        assert await committed(old) == 1


async def test_before_its_heartbeat_a_member_that_reconnects_is_no_tool(tmp_path: Path) -> None:
    """A member that reconnects can't move the group back before its heartbeat."""
    async with (
        served(tmp_path) as (broker, old, _),
        connect_peer("127.0.0.1", broker.port) as again,
    ):
        await old.request(pull_request(0, 0), 5)
        await committed_by(old, 4, soughtBack=False)
        await committed_by(again, 3, soughtBack=False)
        assert await committed(old) == 4


async def test_a_reset_holds_although_a_member_commits_on(tmp_path: Path) -> None:
    """A reset holds while a member commits: members are told by 220, and at a pull by 21."""
    told: list[Command] = []
    async with served(tmp_path, told.append) as (_, consumer, tool):
        await consumer.request(pull_request(0, 6), 5)
        await committed_by(consumer, 6)
        answer = await tool.request(reset_request(), 5)
        assert answer.code == Code.SUCCESS, answer.remark
        table = decode_body(ResetOffsetBody, answer.payload).offset_table
        assert table[MessageQueue("Orders", "broker-a", 0)] == 0
        assert len(table) == 4
        consumer.send_oneway(oneway(commit_request(6)))
        assert await committed(tool) == 0
        (reset,) = [each for each in told if each.code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
        assert reset.is_oneway
        assert (reset.ext["topic"], reset.ext["group"]) == ("Orders", "C")
        assert decode_body(ResetOffsetBody, reset.payload).offset_table == table
        moved = await consumer.request(pull_request(0, 6), 5)
        assert moved.code == Code.PULL_OFFSET_MOVED
        assert moved.ext["nextBeginOffset"] == 0
        found = await consumer.request(pull_request(0, 0), 5)
        assert len(records(found)) == 6
        await committed_by(consumer, 6)
        assert await committed(tool) == 6


async def test_a_reset_holds_although_a_consumer_had_to_connect_anew(tmp_path: Path) -> None:
    """A reset holds though its consumer reconnects: old commits don't count before a pull."""
    async with served(tmp_path) as (broker, consumer, tool):
        await consumer.request(pull_request(0, 6), 5)
        await committed_by(consumer, 6)
        assert (await tool.request(reset_request(), 5)).code == Code.SUCCESS
        consumer.close()
        async with connect_peer("127.0.0.1", broker.port) as again:
            again.send_oneway(oneway(commit_request(6)))
            await ask(again, RequestCode.HEART_BEAT, heartbeat("c1"))
            again.send_oneway(oneway(commit_request(6)))
            again.send_oneway(oneway(commit_request(0)))
            assert await committed(again) == 0
            await again.request(pull_request(0, 0), 5)
            await committed_by(again, 6)
            assert await committed(tool) == 6


async def test_resets_by_time_by_offset_and_without_force(tmp_path: Path) -> None:
    """A reset goes by time or offset, -1 is the end, and without force only back."""
    async with served(tmp_path) as (_, consumer, tool):
        await ask(consumer, RequestCode.UNREGISTER_CLIENT, clientID="c1", consumerGroup="C")
        for changed, offset in (
            ({"timestamp": -1}, 6),
            ({"offset": 4, "queueId": 0}, 4),
            ({"timestamp": -1, "isForce": False}, 4),
            ({"timestamp": 0, "isForce": False}, 0),
            ({"offset": 99, "queueId": 0}, 6),
        ):
            answer = await tool.request(reset_request(**changed), 5)
            assert answer.code == Code.SUCCESS, answer.remark
            assert await committed(tool) == offset
        assert (await tool.request(reset_request(queueId=9), 5)).code == Code.SYSTEM_ERROR
        unknown = await tool.request(reset_request(topic="None"), 5)
        assert unknown.code == Code.TOPIC_NOT_EXIST


async def test_a_tool_asks_a_consumer_through_the_broker(tmp_path: Path) -> None:
    """A tool asks a consumer for its state (307), offsets (223), or to handle one (309)."""
    status = {MessageQueue("Orders", "broker-a", 0): 5}
    handled: list[bytes] = []

    def consumer_of(request: Command) -> Command | None:
        match request.code:
            case RequestCode.GET_CONSUMER_RUNNING_INFO:
                return request.reply(body=b'{"jstack":"..."}')
            case RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
                body = ConsumerStatusFromClientBody(status)
                return request.reply(body=encode_body(body, Dialect.LOOSE))
            case RequestCode.CONSUME_MESSAGE_DIRECTLY:
                handled.append(bytes(Record(request.payload).body))
                return request.reply(body=b'{"consumeResult":"CR_SUCCESS"}')
        return None

    async with served(tmp_path, consumer_of) as (_, _, tool):
        who: dict[str, ExtValue] = {"consumerGroup": "C", "clientId": "c1"}
        info = await ask(tool, RequestCode.GET_CONSUMER_RUNNING_INFO, **who, jstackEnable=False)
        assert (info.code, bytes(info.payload)) == (Code.SUCCESS, b'{"jstack":"..."}')
        asked = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        found = await ask(tool, asked, topic="Orders", group="C")
        assert decode_body(ConsumerStatusBody, found.payload).consumer_table == {"c1": status}
        (first, *_) = records(await tool.request(pull_request(0, 0), 5))
        message_id = offset_message_id(host_bytes("127.0.0.1", 1), first.physical_offset)
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        done = await ask(tool, code, **who, msgId=message_id)
        assert (done.code, bytes(done.payload)) == (Code.SUCCESS, b'{"consumeResult":"CR_SUCCESS"}')
        assert handled == [b"m0 0 0"]
        nobody = await ask(tool, RequestCode.GET_CONSUMER_RUNNING_INFO, **who | {"clientId": "x"})
        assert nobody.code == Code.SYSTEM_ERROR


async def test_a_consumer_that_leaves_while_it_is_asked_is_reported_at_once(
    tmp_path: Path,
) -> None:
    """The tool does not wait for its time to be over."""
    async with served(tmp_path) as (broker, _, tool), trio.open_nursery() as nursery:

        @nursery.start_soon
        async def ask_it() -> None:
            who: dict[str, ExtValue] = {"consumerGroup": "C", "clientId": "c2"}
            with trio.fail_after(RELAY_S / 2):
                answer = await ask(tool, RequestCode.GET_CONSUMER_RUNNING_INFO, **who)
            assert answer.code == Code.SYSTEM_ERROR
            assert "broke" in (answer.remark or "") or "connected" in (answer.remark or "")

        async with connect_peer("127.0.0.1", broker.port, on_request=lambda _: None) as leaving:
            await ask(leaving, RequestCode.HEART_BEAT, heartbeat("c2"))
            await trio.sleep(0.05)


async def test_tools_that_read_leave_no_group_and_no_topic_behind(tmp_path: Path) -> None:
    """A pull of another unknown group makes the group, and no topic for retries."""
    async with served(tmp_path) as (broker, _, tool):
        for group in ("TOOLS_CONSUMER", "Reader"):
            found = await tool.request(pull_request(0, consumerGroup=group), 5)
            assert found.code == Code.SUCCESS
        await ask(tool, RequestCode.HEART_BEAT, heartbeat("t1", "TOOLS_CONSUMER"))
        assert broker.machine.groups.get("TOOLS_CONSUMER") is None
        assert broker.machine.topics.get("%RETRY%TOOLS_CONSUMER") is None
        assert broker.machine.groups.get("Reader") is not None
        assert broker.machine.topics.get("%RETRY%Reader") is None
