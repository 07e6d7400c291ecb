"""The dearest requests that a broker may be sent, for each code that it serves.

`largest` has the state that they go to. Bodies are made when they are asked for.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec
from largest import DEEP_MESSAGES, NOW_MS

from dledger.limits import (
    ENTRY_BYTES_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADER_LISTS_MAX,
    MIB,
    PROPERTIES_BYTES_MAX,
    PROPERTIES_TEXT_BYTES_MAX,
    SUBSCRIPTION_TAGS_MAX,
)
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.message import (
    BatchItem,
    batch_encode,
    host_bytes,
    offset_message_id,
    properties_encode,
)
from dledger.remoting.record import encode_record
from mqbroker import limits
from mqbroker.testing.requests import BORN_HOST, produce_request, pull_request, send_request

Code = RequestCode
Requests: TypeAlias = Callable[[], Iterator[Command]]

LARGEST_BODY = FRAME_BYTES_MAX - HEADER_BYTES_MAX - 64
ALL = "DEAREST" in os.environ
"""True to try all forms, also those that differ little."""
LONG = "x" * (HEADER_BYTES_MAX - 4096)
QUEUES = limits.QUEUES_PER_TOPIC_MAX


def hostile_bodies() -> Iterator[bytes]:
    """Bodies that take long to read, as any format."""
    yield b"x" * LARGEST_BODY
    yield b"[" * LARGEST_BODY
    yield loose(b"1", 2 * MIB - 100)
    if not ALL:
        return
    yield b"\n=" * (LARGEST_BODY // 2)
    yield b'"' + b"x" * LARGEST_BODY + b'"'
    yield b"\xff" * LARGEST_BODY
    yield b"1" * LARGEST_BODY
    for inner in (b"[]", b'""', b"1", b"{}"):
        for size in (60_000, 128 * 1024, 1_000_000, LARGEST_BODY):
            yield loose(inner, size)


def loose(inner: bytes, size: int) -> bytes:
    """A document that only the slow reader takes."""
    return b'{"x":{1:[' + b",".join([inner] * (size // (len(inner) + 1))) + b"]}}"


def rows(name: str, row: Mapping[str, object], varied: str, count: int, **beside: object) -> bytes:
    """A document with `count` rows, one member of which has the row's number."""
    named = [{**row, varied: f"row-{number}"} for number in range(count)]
    return json.dumps({**beside, name: named}).encode()


def full(name: str, row: Mapping[str, object], varied: str, **beside: object) -> Iterator[bytes]:
    """Documents with many rows, from a few to as many as a frame holds."""
    size = len(json.dumps(row)) + 10
    some = (64 * 1024, 512 * 1024, MIB - 4096, 4 * MIB, LARGEST_BODY)
    for size_bytes in some if ALL else some[2:]:
        yield rows(name, row, varied, size_bytes // size, **beside)


def asks(code: int, *exts: Mapping[str, ExtValue]) -> Requests:
    """Requests without a body, ours and stock ones, and one with the longest header."""

    def made() -> Iterator[Command]:
        for ext in exts or ({},):
            for encoding in (HeaderEncoding.MSGPACK, HeaderEncoding.JSON):
                yield Command(code, dict(ext), encoding=encoding)
            for name, value in ext.items():
                if isinstance(value, str):
                    yield Command(code, {**ext, name: LONG})

    return made


def sends(code: int, *bodies: Callable[[], Iterator[bytes]]) -> Requests:
    """Requests with a document as body: dear ones of their kind, and wrong ones."""

    def made() -> Iterator[Command]:
        for some in (*bodies, hostile_bodies):
            for body in some():
                yield Command(code, body=body)

    return made


WIDE: Final = {"topic": "Wide0"}
MANY: Final = {"group": "Many", "consumerGroup": "Many"}
OF_MANY: Final = WIDE | MANY
POP: Final[Mapping[str, ExtValue]] = OF_MANY | {
    "queueId": -1,
    "maxMsgNums": 32,
    "invisibleTime": 1000,
    "pollTime": 0,
    "bornTime": 0,
    "initMode": 0,
}
TAGS = " || ".join(f"tag-{number}" for number in range(SUBSCRIPTION_TAGS_MAX))
DEAR_SQL = " OR ".join(["a>9"] * 1169)
FILTERS: Final = (("*", "TAG"), (TAGS, "TAG"), ("x = 1", "SQL92"), (DEAR_SQL, "SQL92"))
FLYING: Final = POP | {"consumerGroup": "G0"}
RECEIPT = f"0 {NOW_MS} 1000 0 0 broker-a 0 0"
QUEUE = {"topic": "Wide0", "brokerName": "broker-a", "queueId": 0}


def pops() -> Iterator[Command]:
    """Pops of all queues of a topic, with filters that nothing passes, and where much is in
    flight."""
    for ext in (POP, FLYING, FLYING | {"queueId": 1023}, POP | {"order": True}):
        for exp, kind in FILTERS:
            yield Command(Code.POP_MESSAGE, {**ext, "exp": exp, "expType": kind})
    for count in (1, limits.POP_MESSAGES_OURS_MAX):
        for ext in (POP, FLYING, POP | {"topic": "Deep"}):
            yield Command(Code.POP_MESSAGE, {**ext, "maxMsgNums": count, "maxMsgBytes": 6 * MIB})
    for exp in (TAGS, DEAR_SQL):
        kind = "TAG" if exp is TAGS else "SQL92"
        yield Command(Code.POP_MESSAGE, {**POP, "topic": "Deep", "exp": exp, "expType": kind})


def notifications() -> Iterator[Command]:
    """Looks of NOTIFICATION at the same queues as pops."""
    for request in pops():
        request.code = Code.NOTIFICATION
        yield request


def pulls(code: int) -> Requests:
    """Pulls with filters that no message passes, and pulls of as much as fits."""

    def made() -> Iterator[Command]:
        for expression, kind in FILTERS:
            request = pull_request(
                subscription=expression, expressionType=kind, topic="Deep", consumerGroup="Many"
            )
            request.code = code
            yield request
        request = pull_request(topic="Deep", maxMsgNums=10**6, maxMsgBytes=6 * MIB)
        request.code = code
        yield request
        yield Command(code, {**request.ext, "subscription": LONG})

    return made


def batches() -> Iterator[Command]:
    """Batches as large, and with as many messages, as may be, in each shape.

    Each is sent for the first time and once more: that is answered with the first copy's place. The
    last ones begin with a key that others had.
    """
    sends = [
        ([(0, MESSAGES)], b""),
        ([(queue_id % QUEUES, 16) for queue_id in range(QUEUES)], b""),
        ([(queue_id % 4, 1) for queue_id in range(MESSAGES)], b""),
        ([(0, 1)], b"x" * 4 * MIB),
    ]
    for runs, content in sends:
        request = produce_request(f"k{next(_fresh)}", "Wide1", runs, content)
        yield from (request, request)
    for properties in laden():
        request = batch_with(properties)
        yield from (request, request)
    for runs, content in sends:
        yield produce_request("k", "Wide1", runs, content)
    runs = [[0, 0]] * 60_000
    yield Command(Code.PRODUCE, {"topic": "Wide1", "producerGroup": "P", "runs": runs}, b"x" * 100)


def laden() -> Iterator[list[dict[str, str]]]:
    """The properties of the messages of batches that are dear to index."""
    few = range(LARGEST_ENTRY // PROPERTIES_BYTES_MAX)
    words = " ".join(f"w{number}" for number in range(32))
    yield [{"KEYS": "k" * (n % 30 + 1)} for n in range(MESSAGES)]
    yield [
        {"KEYS": f"{n}", "TAGS": f"{n}", "EXPIRES_AT_MS": f"{NOW_MS * 2 + n}"}
        for n in range(MESSAGES)
    ]
    yield [{"KEYS": words, "TAGS": f"{n}"} for n in range(3686)]
    yield [{"KEYS": words} for _ in range(MESSAGES)]
    yield [{"KEYS": "k" * (30_000 - 8 * n)} for n in few]
    yield [{"KEYS": "a " * 15_000} for _ in few]
    yield [{"KEYS": " " * 30_000} for _ in few]
    yield [{"KEYS": "a " * 280} for _ in few]
    yield [{"TAGS": f"{n}" + "\u20ac" * 10_000} for n in few]
    yield [{"TAGS": f"{n}" + "t" * 30_000} for n in few]
    yield [{"EXPIRES_AT_MS": "9" * 30_000} for _ in few]
    yield [{"x" + name: f"{name}\x01" * 3000} for name in ("KEYS", "TAGS") for _ in few]


_fresh = itertools.count()
MESSAGES = limits.MESSAGES_PER_BATCH_MAX
LARGEST_ENTRY = ENTRY_BYTES_MAX - MIB


def batch_with(several: list[dict[str, str]]) -> Command:
    """A batch of messages with these properties, and unique keys of different lengths."""
    number = next(_fresh)
    records = [
        encode_record(
            topic=b"Wide1",
            queue_id=0,
            body=b"",
            properties=properties_encode({"UNIQ_KEY": f"{number}-{n}" + "x" * (n % 7), **each}),
            born_timestamp_ms=1,
            born_host=BORN_HOST,
        )
        for n, each in enumerate(several)
    ]
    ext: dict[str, ExtValue] = {"topic": "Wide1", "producerGroup": "P", "runs": [[0, len(records)]]}
    return Command(Code.PRODUCE, ext, b"".join(records))


def stock_batches() -> Iterator[Command]:
    """Very many small messages, with properties or without."""
    for count, properties in ((16_384, b""), (16_384, b"a\x01b\x02" * 8), (400_000, b"")):
        body = batch_encode([BatchItem(b"x", properties)] * count)[:LARGEST_BODY]
        yield send_request(body, Code.SEND_BATCH_MESSAGE, b="Wide1", m="true")


def sends_of(code: int) -> Requests:
    """Large ones, with as many properties as there may be."""

    def made() -> Iterator[Command]:
        properties = "".join(f"k{number}\x01v\x02" for number in range(3000))
        for body, text in (
            (b"x" * 4 * MIB, ""),
            (b"x", properties),
            (b"x", "\x02" * 30_000),
            (b"x", "KEYS\x01" + "k " * 16_000 + "\x02"),
            (b"x", "DELAY\x01" + "9" * 30_000 + "\x02"),
            (b"x", "TIMER_DELAY_MS\x01" + "9" * 30_000 + "\x02"),
            (b"x", "_SYS_MSG_PRIORITY_\x01" + "9" * 30_000 + "\x02"),
            (b"x" * LARGEST_BODY, ""),
        ):
            yield send_request(body, code, b="Wide1", i=text)

    return made


def acks() -> Iterator[Command]:
    """Acks with as many rows as a batch may have, of one delivery or of each."""
    bits = base64.b64encode(b"\xff" * limits.BATCH_ACK_BITS_BYTES_MAX).decode()

    def row(queue_id: int, base: int, some: str) -> dict[str, object]:
        return {
            **{"c": "G0", "t": "Wide0", "r": "0", "so": base, "q": queue_id, "rq": 0, "it": 1},
            "pt": NOW_MS,
            "b": some,
        }

    for count, some in ((limits.BATCH_ACKS_MAX, "AQ=="), (1400, bits)):
        some_rows = [row(n % QUEUES, n % 900, some) for n in range(count)]
        body = json.dumps({"brokerName": "broker-a", "acks": some_rows}).encode()
        yield Command(Code.BATCH_ACK_MESSAGE, body=body)
    yield from sends(Code.BATCH_ACK_MESSAGE)()


def heartbeats() -> Iterator[bytes]:
    """Heartbeats of many groups, and of one with many subscriptions or tags."""
    subscription = {"topic": "Wide0", "subString": "*"}
    yield rows("producerDataSet", {"groupName": ""}, "groupName", 1024, clientID="c9")
    yield from full("producerDataSet", {"groupName": ""}, "groupName", clientID="c9")
    for groups, topics in ((1000, 10), (10, 1000), (1, 1024)):
        some = [subscription | {"topic": f"Topic-{number:05}"} for number in range(topics)]
        consumer = {"groupName": "", "subscriptionDataSet": some, "sameSubscriptions": True}
        yield rows("consumerDataSet", consumer, "groupName", groups, clientID="c9")
    tags = [f"t{number}" for number in range(60_000)]
    tagged = subscription | {"tagsSet": tags, "codeSet": [*range(60_000)]}
    for name in ("G1", "Many"):
        consumers = [{"groupName": name, "subscriptionDataSet": [tagged]}]
        yield json.dumps({"clientID": "c9", "consumerDataSet": consumers}).encode()


def locks() -> Iterator[bytes]:
    """Lock requests for very many queues."""
    for count in (QUEUES, 12_000):
        queues = [QUEUE | {"queueId": number} for number in range(count)]
        body = {"consumerGroup": "G0", "clientId": "c1", "mqSet": queues, "withTokens": True}
        yield json.dumps(body).encode()


def topics() -> Iterator[bytes]:
    """Changes of very many topics."""
    row = {"topicName": "", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    yield from full("topicConfigList", row, "topicName")
    named = [
        row | {"topicName": f"Topic-{number:05}"}
        for number in range(limits.CONFIGS_PER_REQUEST_MAX)
    ]
    yield json.dumps({"topicConfigList": named}).encode()


def groups() -> Iterator[bytes]:
    """Changes of very many groups."""
    row = {"groupName": "", "retryMaxTimes": 3, "attributes": {"+a": "b"}}
    yield from full("groupConfigList", row, "groupName")
    named = [
        {"groupName": f"Group-{number:05}", "retryMaxTimes": 5}
        for number in range(limits.CONFIGS_PER_REQUEST_MAX)
    ]
    yield json.dumps({"groupConfigList": named}).encode()


def settings() -> Iterator[bytes]:
    """Very long keys and values, and very many."""
    longest = PROPERTIES_TEXT_BYTES_MAX
    yield b"x" * (longest - 2) + b"=1"
    yield b"autoCreateTopicEnable=" + b"x" * (longest - 30)
    yield b"".join(b"key%d=1\n" % number for number in range(longest // 12))
    yield b"x=\n" * (longest // 3)
    yield b"messageDelayLevel=" + b"1s " * (longest // 4)


def users() -> Iterator[bytes]:
    """Users with a password, and with one that is far too long."""
    yield json.dumps({"username": "u", "password": "p"}).encode()
    yield json.dumps({"username": "u", "password": "p" * (MIB - 4096)}).encode()


def acls() -> Iterator[bytes]:
    """Policies with as many entries as a body holds, and as many sources as one may have."""
    sources = [f"2001:db8::{number:x}" for number in range(16)]
    row = {"actions": ["All"], "decision": "Allow", "sourceIps": sources}
    for count in (900, 2_500):
        entries = [{**row, "resource": f"Topic:t{number}"} for number in range(count)]
        yield json.dumps({"policies": [{"entries": entries}]}).encode()


def sends_named(
    code: int, ext: Mapping[str, ExtValue], *bodies: Callable[[], Iterator[bytes]]
) -> Requests:
    """Requests of a header with these bodies, and with hostile ones."""

    def made() -> Iterator[Command]:
        for request in sends(code, *bodies)():
            yield Command(request.code, ext, request.body, encoding=request.encoding)

    return made


def staged() -> Iterator[Command]:
    """The batches that PRODUCE is sent, staged."""
    extra: dict[str, ExtValue] = {"producerName": "n", "epoch": 1, "batch": 0, "home": "broker-a"}
    for request in batches():
        yield Command(Code.STAGE, request.ext | extra, request.payload)


def written_once() -> Iterator[Command]:
    """Entries written once to many topics, with many offsets."""
    moves = [["Wide0", number, 1, 2, None] for number in range(limits.MOVES_PER_WRITE_MAX)]
    ext: dict[str, ExtValue] = {
        **{"producerName": "named-0", "epoch": 1, "stream": 0, "sequence": 2, "group": "Many"},
        **{"parts": [], "moves": moves},
    }
    yield Command(Code.WRITE_ONCE, ext)
    for count in (64, 240):
        one = produce_request("k", "Wide1", [(0, count)], b"")
        parts = [["Wide1", len(one.payload), [[0, count]]]] * limits.PARTS_PER_WRITE_MAX
        ext = ext | {"moves": [], "group": "", "parts": parts}
        yield Command(Code.WRITE_ONCE, ext, bytes(one.payload) * len(parts))


STATISTICS: Final = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Wide0"}
SEND_BACK: Final = {"offset": 0, "group": "Many", "delayLevel": 0, "maxReconsumeTimes": 16}
AN_ID = offset_message_id(host_bytes("127.0.0.1", 1), 0)
TOPIC_FIELDS: Final[Mapping[str, ExtValue]] = {
    **{"topic": "Wide1", "defaultTopic": "TBW102", "readQueueNums": QUEUES, "perm": 6},
    **{"writeQueueNums": QUEUES, "topicFilterType": "SINGLE_TAG", "order": False},
    "attributes": ",".join(f"+k{number}=v" for number in range(20_000)),
}
RESET: Final[Mapping[str, ExtValue]] = OF_MANY | {"timestamp": NOW_MS, "isForce": True}

#: Every code that the broker serves; `test_turns` holds that none is left out.
REQUESTS: dict[int, Requests] = {
    **{code: sends_of(code) for code in (Code.SEND_MESSAGE_V2, Code.SEND_REPLY_MESSAGE_V2)},
    **{code: sends_of(code) for code in (Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE)},
    Code.SEND_BATCH_MESSAGE: stock_batches,
    Code.PRODUCE: batches,
    Code.REGISTER_PRODUCER: asks(Code.REGISTER_PRODUCER, {"producerName": "n", "instance": "a"}),
    Code.STAGE: staged,
    Code.END_STAGED: asks(Code.END_STAGED, {"offset": 0, "commitLogOffset": 0}),
    Code.DECISION_OF: asks(Code.DECISION_OF, {"producerName": "named-0"}),
    Code.WRITE_ONCE: written_once,
    Code.RECALL_MESSAGE: asks(Code.RECALL_MESSAGE, {"topic": "Wide0", "recallHandle": "x" * 9}),
    Code.CONSUMER_SEND_MSG_BACK: asks(Code.CONSUMER_SEND_MSG_BACK, SEND_BACK),
    Code.END_TRANSACTION: asks(
        Code.END_TRANSACTION,
        {
            **{"producerGroup": "P", "tranStateTableOffset": 0, "commitLogOffset": 0},
            **{"commitOrRollback": 8, "fromTransactionCheck": False, "msgId": AN_ID},
        },
    ),
    Code.PULL_MESSAGE: pulls(Code.PULL_MESSAGE),
    Code.LITE_PULL_MESSAGE: pulls(Code.LITE_PULL_MESSAGE),
    Code.GET_MAX_OFFSET: asks(Code.GET_MAX_OFFSET, WIDE | {"queueId": 0}),
    Code.GET_MIN_OFFSET: asks(Code.GET_MIN_OFFSET, WIDE | {"queueId": 0}),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: asks(
        Code.SEARCH_OFFSET_BY_TIMESTAMP, {"topic": "Deep", "queueId": 0, "timestamp": NOW_MS * 2}
    ),
    Code.GET_EARLIEST_MSG_STORETIME: asks(Code.GET_EARLIEST_MSG_STORETIME, WIDE | {"queueId": 0}),
    Code.VIEW_MESSAGE_BY_ID: asks(Code.VIEW_MESSAGE_BY_ID, {"offset": 0}),
    Code.QUERY_MESSAGE: asks(
        Code.QUERY_MESSAGE,
        {**WIDE, "key": "k", "maxNum": 10**6, "beginTimestamp": 0, "endTimestamp": 1 << 60},
    ),
    Code.LIST_SCHEDULED: asks(Code.LIST_SCHEDULED, {"beginMs": 0, "count": 10**6}),
    Code.EXPORT_REPLICA: asks(Code.EXPORT_REPLICA, {"to": "a/b", "exportId": "x"}),
    Code.QUERY_CONSUMER_OFFSET: asks(Code.QUERY_CONSUMER_OFFSET, OF_MANY | {"queueId": 0}),
    Code.UPDATE_CONSUMER_OFFSET: asks(
        Code.UPDATE_CONSUMER_OFFSET, OF_MANY | {"queueId": 0, "commitOffset": 1}
    ),
    Code.HEART_BEAT: sends(Code.HEART_BEAT, heartbeats),
    Code.UNREGISTER_CLIENT: asks(
        Code.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "P", "consumerGroup": "Many"}
    ),
    Code.GET_CONSUMER_LIST_BY_GROUP: asks(Code.GET_CONSUMER_LIST_BY_GROUP, MANY),
    Code.CHECK_CLIENT_CONFIG: sends(Code.CHECK_CLIENT_CONFIG),
    Code.PROVE: sends(Code.PROVE),
    Code.GROUP_INFO: asks(Code.GROUP_INFO),
    Code.SIGN_ON: asks(Code.SIGN_ON),
    Code.CREATE_USER: sends_named(Code.CREATE_USER, {"username": "u"}, users),
    Code.UPDATE_USER: sends_named(Code.UPDATE_USER, {"username": "user-1"}, users),
    Code.DELETE_USER: asks(Code.DELETE_USER, {"username": "user-2"}),
    Code.GET_USER: asks(Code.GET_USER, {"username": "user-1", "showPassword": True}),
    Code.LIST_USER: asks(Code.LIST_USER, {}, {"filter": LONG}),
    Code.CREATE_ACL: sends_named(Code.CREATE_ACL, {"subject": "User:user-1"}, acls),
    Code.UPDATE_ACL: sends_named(Code.UPDATE_ACL, {"subject": "User:user-1"}, acls),
    Code.DELETE_ACL: asks(Code.DELETE_ACL, {"subject": "User:user-3", "resource": "Topic:x"}),
    Code.GET_ACL: asks(Code.GET_ACL, {"subject": "User:user-1"}),
    Code.LIST_ACL: asks(Code.LIST_ACL, {}, {"subjectFilter": "er", "resourceFilter": "pic"}),
    Code.LIST_OBSERVED: asks(Code.LIST_OBSERVED),
    Code.LIST_AUDITED: asks(Code.LIST_AUDITED),
    Code.VIEW_HISTORY: asks(Code.VIEW_HISTORY),
    Code.GET_BROKER_CONFIG: asks(Code.GET_BROKER_CONFIG),
    Code.GET_BROKER_RUNTIME_INFO: asks(Code.GET_BROKER_RUNTIME_INFO),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: asks(Code.CLEAN_EXPIRED_CONSUMEQUEUE),
    Code.CLEAN_UNUSED_TOPIC: asks(Code.CLEAN_UNUSED_TOPIC),
    Code.DELETE_EXPIRED_COMMITLOG: asks(Code.DELETE_EXPIRED_COMMITLOG),
    Code.VIEW_BROKER_STATS_DATA: asks(Code.VIEW_BROKER_STATS_DATA, STATISTICS),
    Code.GET_ALL_TOPIC_CONFIG: asks(Code.GET_ALL_TOPIC_CONFIG),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: asks(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER),
    Code.TRANSFER_LEADER: asks(Code.TRANSFER_LEADER, {"nodeId": "n1"}),
    Code.ADD_MEMBER: asks(
        Code.ADD_MEMBER, {"nodeId": "n9", "host": "h", "port": 1, "clientAddr": "h:1"}
    ),
    Code.REMOVE_MEMBER: asks(Code.REMOVE_MEMBER, {"nodeId": "n9"}),
    Code.UPDATE_BROKER_CONFIG: sends(Code.UPDATE_BROKER_CONFIG, settings),
    Code.LOCK_BATCH_MQ: sends(Code.LOCK_BATCH_MQ, locks),
    Code.UNLOCK_BATCH_MQ: sends(Code.UNLOCK_BATCH_MQ, locks),
    Code.QUERY_ASSIGNMENT: sends(Code.QUERY_ASSIGNMENT),
    Code.SET_MESSAGE_REQUEST_MODE: sends(Code.SET_MESSAGE_REQUEST_MODE),
    Code.POP_MESSAGE: pops,
    Code.ACK_MESSAGE: asks(
        Code.ACK_MESSAGE, FLYING | {"queueId": 0, "offset": 0, "extraInfo": RECEIPT}
    ),
    Code.BATCH_ACK_MESSAGE: acks,
    Code.CHANGE_MESSAGE_INVISIBLETIME: asks(
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        FLYING | {"queueId": 0, "offset": 0, "extraInfo": RECEIPT, "invisibleTime": 1},
    ),
    Code.PEEK_MESSAGE: asks(Code.PEEK_MESSAGE, POP, FLYING, FLYING | {"queueId": 1023}),
    Code.NOTIFICATION: notifications,
    Code.POLLING_INFO: asks(Code.POLLING_INFO, POP),
    Code.UPDATE_AND_CREATE_TOPIC: asks(Code.UPDATE_AND_CREATE_TOPIC, TOPIC_FIELDS),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: sends(Code.UPDATE_AND_CREATE_TOPIC_LIST, topics),
    Code.QUERY_CONSUME_QUEUE: asks(
        Code.QUERY_CONSUME_QUEUE,
        {"topic": "Deep", "queueId": 0, "index": 0, "count": DEEP_MESSAGES},
    ),
    Code.GET_TOPIC_CONFIG: asks(Code.GET_TOPIC_CONFIG, WIDE),
    Code.GET_TOPIC_STATS_INFO: asks(Code.GET_TOPIC_STATS_INFO, WIDE),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: sends(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: sends(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, groups
    ),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: asks(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: asks(Code.GET_SUBSCRIPTIONGROUP_CONFIG, MANY),
    Code.GET_CONSUMER_CONNECTION_LIST: asks(
        Code.GET_CONSUMER_CONNECTION_LIST, MANY, {"consumerGroup": "G1"}
    ),
    Code.GET_PRODUCER_CONNECTION_LIST: asks(
        Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "producers-1"}
    ),
    Code.GET_ALL_PRODUCER_INFO: asks(Code.GET_ALL_PRODUCER_INFO),
    Code.QUERY_TOPICS_BY_CONSUMER: asks(Code.QUERY_TOPICS_BY_CONSUMER, MANY),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: asks(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, OF_MANY),
    Code.GET_CONSUME_STATS: asks(
        Code.GET_CONSUME_STATS, MANY, OF_MANY, {"consumerGroup": "G1"}, {"consumerGroup": "Some"}
    ),
    Code.GET_BROKER_CONSUME_STATS: asks(
        Code.GET_BROKER_CONSUME_STATS, {"isOrder": False}, {"isOrder": True}
    ),
    Code.QUERY_CONSUME_TIME_SPAN: asks(Code.QUERY_CONSUME_TIME_SPAN, OF_MANY),
    Code.CLONE_GROUP_OFFSET: asks(
        Code.CLONE_GROUP_OFFSET,
        {"srcGroup": "G1", "destGroup": "G2"},
        {"srcGroup": "Many", "destGroup": "G3"},
    ),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: asks(Code.QUERY_TOPIC_CONSUME_BY_WHO, WIDE),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: asks(Code.INVOKE_BROKER_TO_RESET_OFFSET, RESET),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: asks(
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, OF_MANY
    ),
    Code.GET_CONSUMER_RUNNING_INFO: asks(
        Code.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "Many", "clientId": "member-399"}
    ),
    Code.CONSUME_MESSAGE_DIRECTLY: asks(
        Code.CONSUME_MESSAGE_DIRECTLY,
        {"consumerGroup": "Many", "clientId": "member-399", "msgId": AN_ID},
    ),
    # Deletions come last.
    Code.DELETE_SUBSCRIPTIONGROUP: asks(
        Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Many", "removeOffset": True}
    ),
    Code.DELETE_TOPIC_IN_BROKER: asks(Code.DELETE_TOPIC_IN_BROKER, WIDE),
}


def dear_headers() -> Iterator[bytes]:
    """Frames whose headers are long to read, in each encoding."""
    room = HEADER_BYTES_MAX - 200

    def frame(encoding: int, header: bytes) -> bytes:
        assert len(header) <= HEADER_BYTES_MAX
        words = struct.pack(">II", 4 + len(header), encoding << 24 | len(header))
        return words + header

    for value in ("1", '""', "null", "1.5", "1e300", "1.7976931348623157e308", "9" * 4000, "[]"):
        count = room // (len(value) + 9)
        fields = ",".join(f'"{number:05}":{value}' for number in range(count))
        yield frame(0, f'{{"code":10,"opaque":1,"extFields":{{{fields}}}}}'.encode())
    for inner in ("[" * 100_000, '{"a":' * 40_000, '"' + "\\u00e4" * 40_000, "0." + "9" * 250_000):
        yield frame(0, f'{{"code":10,"extFields":{{"a":{inner}'.encode())
    yield frame(0, b'{"code":10' + b" " * room)
    for width in (0, 1, 5):
        names = [b"%05d" % number for number in range(room // (6 + width))]
        ext = b"".join(struct.pack(">h", width) + each[5 - width :] + bytes(4) for each in names)
        yield frame(1, struct.pack(">hBhiiII", 10, 0, 1, 1, 0, 0, len(ext)) + ext)
    for items in ([[]], [[0, 0]], [[[]]], [""], [0], [None], [1 << 63], [1.5], [{}]):
        count = room // len(msgspec.msgpack.encode(items[0]))
        header = (10, 0, 409, 1, 0, None, {"a": items * count})
        yield frame(2, msgspec.msgpack.encode(header))
    for few in (limits_of_lists(1), limits_of_lists(2)):
        yield frame(2, msgspec.msgpack.encode((10, 0, 409, 1, 0, None, {"a": few})))
    many = {f"{number:05}": number for number in range(26_000)}
    yield frame(2, msgspec.msgpack.encode((10, 0, 409, 1, 0, None, many)))


def limits_of_lists(depth: int) -> list[object]:
    """Nested lists, as many as a header may have."""
    item: object = []
    for _ in range(depth - 1):
        item = [item]
    return [item] * ((HEADER_LISTS_MAX - 4) // depth)
