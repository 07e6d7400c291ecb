"""Requests as clients make them, with the fields that a test does not care about filled in.

Everything is about a topic "Orders" and a consumer group "C" unless the test says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.net import Peer
from dledger.remoting.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import FLAG_ONEWAY, Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import (
    AckMessageHeader,
    ChangeMessageInvisibletimeHeader,
    ConsumerSendMsgBackHeader,
    PopMessageHeader,
    ProduceHeader,
    PullMessageHeader,
    encode_header,
)
from dledger.remoting.message import host_bytes, properties_encode
from dledger.remoting.receipts import write_receipt
from dledger.remoting.record import Record, encode_record, walk

TOPIC = "Orders"
GROUP = "C"
BORN_HOST = host_bytes("127.0.0.1", 1)
TIMEOUT_S = 10.0
POP_HIDDEN_MS = 4000
Place = tuple[int, int]
"""The queue and the offset of a message."""


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


def pop_request(
    queue_id: int = -1,
    count: int = 32,
    group: str = GROUP,
    topic: str = TOPIC,
    hidden_ms: int = POP_HIDDEN_MS,
    tags: str = "*",
) -> Command:
    """POP_MESSAGE of one queue or of any, as our clients ask; it waits for nothing."""
    asked = (group, topic, queue_id, count, hidden_ms, 0, 0, 0, "TAG", tags)
    return Command(RequestCode.POP_MESSAGE, encode_header(PopMessageHeader(*asked, order=False)))


def ack_request(place: Place, pop_time: int) -> Command:
    """Acknowledge a popped message: ACK_MESSAGE."""
    header = AckMessageHeader(GROUP, TOPIC, place[0], _receipt(place, pop_time), place[1])
    return Command(RequestCode.ACK_MESSAGE, encode_header(header))


def hide_request(place: Place, pop_time: int, for_ms: int) -> Command:
    """CHANGE_MESSAGE_INVISIBLETIME, which gives the message another pop time."""
    receipt = _receipt(place, pop_time)
    header = ChangeMessageInvisibletimeHeader(GROUP, TOPIC, place[0], receipt, place[1], for_ms)
    return Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, encode_header(header))


def _receipt(place: Place, pop_time: int) -> str:
    return write_receipt(pop_time, POP_HIDDEN_MS, "broker-a", *place)


def give_up_request(position: int, pop_time: int | None) -> Command:
    """CONSUMER_SEND_MSG_BACK to the dead letters; stock consumers name no pop time."""
    header = ConsumerSendMsgBackHeader(position, GROUP, -1, pop_time=pop_time)
    return Command(RequestCode.CONSUMER_SEND_MSG_BACK, encode_header(header))


def commit_request(offset: int, queue_id: int = 0, **changed: ExtValue) -> Command:
    """Commit the offset of a queue: UPDATE_CONSUMER_OFFSET."""
    ext: dict[str, ExtValue] = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id}
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext | {"commitOffset": offset} | changed)


def oneway(request: Command) -> Command:
    """Mark a request as one that is to get no answer."""
    request.flag |= FLAG_ONEWAY
    return request


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


async def commit(peer: Peer, offset: int, queue_id: int = 0, **changed: ExtValue) -> int:
    """Commit an offset of the group; the answer's code."""
    return (await peer.request(commit_request(offset, queue_id, **changed), TIMEOUT_S)).code


def asked(peer: Peer, request: Command) -> list[Command]:
    """A request on its way, whose answer comes into the list."""
    answers: list[Command] = []
    peer.request_nowait(request, answers.append)  # type: ignore[arg-type]
    return answers


def records(response: Command) -> list[Record]:
    """The records of a pull's answer, each with its body's CRC checked."""
    body = memoryview(response.payload)
    found = [Record(body[start:]) for start in walk(body)]
    assert all(record.check() for record in found)
    return found
