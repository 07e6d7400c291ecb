"""A consumer's running info, as tools read it."""

from __future__ import annotations

from dledger.remoting.bodies import Dialect, encode_body
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import host_bytes
from dledger.remoting.record import encode_record
from mqclient.admin.clients import running_info as read
from mqclient.consuming.columns.batch import Listed
from mqclient.consuming.membership.notices import running_info
from mqclient.consuming.progress import Chunk, QueueProgress
from mqclient.consuming.subscriptions import parse_subscription
from mqclient.models import ReceivedMessage

QUEUE = MessageQueue("T", "b", 3)


def message(queue_offset: int) -> ReceivedMessage:
    record = encode_record(
        topic=b"T",
        queue_id=3,
        body=b"x",
        properties=b"",
        born_timestamp_ms=1,
        born_host=host_bytes("127.0.0.1", 1),
        queue_offset=queue_offset,
    )
    return ReceivedMessage(memoryview(record), "b")


def test_a_tool_sees_subscriptions_offsets_and_what_waits() -> None:
    """A tool sees subscriptions, offsets and waiting messages, in the stock tools' dialect."""
    progress = QueueProgress(QUEUE)
    progress.start(5)
    progress.accept(0, Chunk(Listed([message(7), message(9)]), 1 << 21), 12)
    info = running_info(
        name_servers=("n1:1", "n2:2"),
        started_ms=17,
        subscriptions=[parse_subscription("T", "TagA", 1)],
        queues={QUEUE: progress},
    )
    written = encode_body(info, Dialect.LOOSE)
    assert b'"mqTable":{{"brokerName":"b","queueId":3,"topic":"T"}:{' in written
    found = read(written)
    assert found["properties"]["PROP_NAMESERVER_ADDR"] == "n1:1;n2:2"
    assert found["subscriptionSet"][0]["subString"] == "TagA"
    queue = found["mqTable"]["T/b/3"]
    assert (queue["commitOffset"], queue["cachedMsgCount"]) == (5, 2)
    assert (queue["cachedMsgMinOffset"], queue["cachedMsgMaxOffset"]) == (7, 11)
    assert queue["cachedMsgSizeInMiB"] == 2


def test_a_queue_with_nothing_waiting_says_so() -> None:
    """A queue without waiting messages has zeros, as RocketMQ's."""
    progress = QueueProgress(QUEUE)
    progress.start(5)
    info = running_info(name_servers=(), started_ms=0, subscriptions=(), queues={QUEUE: progress})
    assert info.properties["PROP_CONSUME_ORDERLY"] == "false"
    (queue,) = info.mq_table.values()
    assert (queue.cached_msg_count, queue.cached_msg_min_offset) == (0, 0)
    assert (queue.cached_msg_max_offset, queue.commit_offset) == (0, 5)
