"""Requests as clients make them, with the fields that a test does not care about filled in.

Everything is about a topic "Orders" and a consumer group "C" unless the test says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.net import Peer
from dledger.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import ProduceHeader, PullMessageHeader, encode_header
from dledger.remoting.message import host_bytes, properties_encode
from dledger.remoting.record import Record, encode_record, walk

TOPIC = "Orders"
GROUP = "C"
BORN_HOST = host_bytes("127.0.0.1", 1)
TIMEOUT_S = 10.0


async def ask(peer: Peer, code: int, content: bytes | None = None, /, **ext: ExtValue) -> Command:
    """The answer to a request, whatever its code."""
    return await peer.request(Command(code, ext, content or b""), TIMEOUT_S)


def produce_request(
    key: str,
    topic: str = TOPIC,
    runs: Sequence[tuple[int, int]] = ((0, 2), (3, 1)),
    content: bytes | None = None,
) -> Command:
    """PRODUCE: runs of (queue id, count); bodies are "key queue number" or `content`."""
    body = bytearray()
    for queue_id, count in runs:
        for number in range(count):
            body += encode_record(
                topic=topic.encode(),
                queue_id=queue_id,
                body=f"{key} {queue_id} {number}".encode() if content is None else content,
                properties=properties_encode({"UNIQ_KEY": f"{key}-{queue_id}-{number}"}),
                born_timestamp_ms=1,
                born_host=BORN_HOST,
            )
    header = ProduceHeader(topic=topic, producer_group="P", runs=list(runs))
    return Command(RequestCode.PRODUCE, encode_header(header), bytes(body))


def send_request(
    body: bytes = b"hello", code: int = RequestCode.SEND_MESSAGE_V2, /, **changed: ExtValue
) -> Command:
    """A stock client's send to queue 1, in JSON; fields go by their letters."""
    values = ("P", TOPIC, "TBW102", "4", "1", "0", "5", "0", "")
    ext: dict[str, ExtValue] = dict(zip("abcdefghi", values, strict=True))
    return Command(code, ext | changed, body, encoding=HeaderEncoding.JSON)


def pull_request(
    queue_id: int = 0, offset: int = 0, sys_flag: int = 4, **changed: ExtValue
) -> Command:
    """PULL_MESSAGE of up to 32 messages; `changed` replaces header fields by their wire names."""
    header = PullMessageHeader(
        consumer_group=GROUP,
        topic=TOPIC,
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


def heartbeat(client_id: str, group: str = GROUP, topic: str = TOPIC) -> bytes:
    """HEART_BEAT's body: one consumer of one topic."""
    data = ConsumerData(group, subscription_data_set=[SubscriptionData(topic)])
    return encode_body(HeartbeatData(client_id, [], [data]))


def topic_request(topic: str = TOPIC, queues: int = 4) -> Command:
    """An UPDATE_AND_CREATE_TOPIC request as stock mqadmin sends it."""
    ext: dict[str, ExtValue] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": False,
    }
    return Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)


async def make_topic(peer: Peer, topic: str = TOPIC, queues: int = 4) -> Command:
    """Make a topic as mqadmin does."""
    return await peer.request(topic_request(topic, queues), TIMEOUT_S)


def records(response: Command) -> list[Record]:
    """The records of a pull's answer, each with its body's CRC checked."""
    body = memoryview(response.payload)
    found = [Record(body[start:]) for start in walk(body)]
    assert all(record.check() for record in found)
    return found
