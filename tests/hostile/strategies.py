"""Hostile values for requests and entries: at and beyond bounds, broken text, wrong lengths.

A request starts from what an honest client would send, so that it gets past the first check, and is
then spoilt in one or two places. Every header is spoilt by the types of its own fields, so a header
that is added later is tried, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from dledger.errors import FrameError
from dledger.remoting import headers
from dledger.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from dledger.remoting.codec import encode_frame
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding, Language
from dledger.remoting.headers import Header
from dledger.remoting.message import BatchItem, batch_encode, host_bytes, offset_message_id
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import encode_record
from mqbroker.requests.unsupported import REASONS
from mqbroker.state import control
from mqbroker.state.aside import encode_note
from mqbroker.state.decisions import STAGED_MARK, StagedNote
from mqbroker.state.groups import popping
from mqbroker.state.groups.given_up import GIVEN_UP_MARK, GivenUp
from mqbroker.state.once import DECISION_MARK, MARK, Decision, OffsetMove, Once

Code = RequestCode
EDGES = [
    edge + around
    for edge in (0, 1 << 7, 1 << 15, 1 << 16, 1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64, 1 << 70)
    for around in (-1, 0, 1)
]
integers = st.sampled_from([*EDGES, *(-edge for edge in EDGES)]) | st.integers(0, 5)
TOPICS = (
    *("Orders", "Canary", "%RETRY%C", "%DLQ%C", "TBW102", "Fresh", "SCHEDULE_TOPIC_XXXX"),
    *("rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_MOVE_OP_TOPIC"),
)
BROKEN_TEXT = ("", "../x", "a/b", "\0", "é" * 200, "x" * 128, "x" * 40_000, "\x01", "\x02\x01", " ")
texts = st.sampled_from([*TOPICS, *BROKEN_TEXT]) | st.text(max_size=8)
property_strings = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "UNIQ_KEY",
                "TAGS",
                "KEYS",
                "DELAY",
                "TIMER_DELAY_MS",
                "TIMER_DELIVER_MS",
                "TIMER_DELAY_SEC",
                "TRAN_MSG",
                "PGROUP",
                "REAL_TOPIC",
                "REAL_QID",
                "TIMER_OUT_MS",
                "EXPIRES_AT_MS",
                "REPEAT_EVERY_MS",
                "REPEATS_LEFT",
                "REPEAT_CRON",
                "REPEAT_ZONE",
                "_SYS_MSG_PRIORITY_",
                "RECONSUME_TIME",
                "WAIT",
                "CLUSTER",
                "x",
            ]
        ),
        st.sampled_from(["1", "true", "a b c", "k1", "k2", "", "1000", "-1", "P", "Orders", "é"])
        | st.sampled_from(["* * * * *", "0 0 30 2 *", "@daily", "Europe/Berlin", "../x"])
        | integers.map(str),
    ),
    max_size=5,
).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs))
#: True once in ten times: hypothesis is drawn to what is least.
seldom = st.integers(0, 9).map(lambda number: number == 9)
bits = st.integers(0, 31).map(lambda bit: 1 << bit) | st.sampled_from([0, 0x30, 0x7FFFFFFF, -1])

#: State of the group when the first packet comes, filled in by `Group.begin`.
POSITIONS: list[int] = [0]
HANDLES: list[str] = [""]
EPOCHS: list[int] = [1]


def known(values: list[Any]) -> st.SearchStrategy[Any]:
    """Values that an earlier request has brought about."""
    return st.integers(0, 11).map(lambda number: values[number % len(values)])


#: A record of Orders, of the size that an honest header tells.
ONE_RECORD = encode_record(
    topic=b"Orders",
    queue_id=0,
    body=b"once",
    properties=b"",
    born_timestamp_ms=1,
    born_host=host_bytes("127.0.0.1", 1),
)

#: Values that an honest client gives a field, by its name.
HONEST: dict[str, st.SearchStrategy[Any]] = {
    "addr": st.sampled_from(["127.0.0.1:10911", "127.0.0.1:10912"]),
    "compressed": st.just(False),
    "enableActing": st.just(False),
    "crc": st.just(0),
    "brokerId": st.integers(0, 2),
    "commitLogOffset": known(POSITIONS),
    "recallHandle": known(HANDLES),
    "msgId": known(POSITIONS).map(lambda at: offset_message_id(host_bytes("1.1.1.1", 1), at)),
    "tranStateTableOffset": st.just(0),
    "queueOffset": st.integers(0, 3),
    "commitOffset": st.integers(0, 9),
    "initMode": st.integers(0, 2),
    "queueId": st.integers(-1, 3),
    "queue": st.integers(0, 3),
    "extraInfo": st.tuples(st.integers(0, 3), st.sampled_from([1_790_000_000_000, 0, 2**62])).map(
        lambda pair: f"{pair[0]} {pair[1]} 1 0 0 broker-a 0 {pair[0]}"
    ),
    "invisibleTime": st.sampled_from([1, 1000, 60_000]),
    "pollTime": st.sampled_from([0, 1, 15_000]),
    "attemptId": st.sampled_from(["", "a", "b"]),
    "bits": st.sampled_from(["Dw==", "AQ==", "", "//////8="]),
    "expType": st.sampled_from(["TAG", "SQL92"]),
    "offset": known(POSITIONS),
    "flag": st.just(0),
    "nums": st.integers(1, 4),
    "perm": st.just(6),
    "topicFilterType": st.just("SINGLE_TAG"),
    "properties": property_strings,
    "commitOrRollback": st.sampled_from([0, 8, 12]),
    "reconsumeTimes": st.sampled_from([0, 0, 1, 15, 16, 2**31 - 1]),
    "delayLevel": st.integers(-1, 4),
    "timestamp": st.sampled_from([0, -1, 1_790_000_000_000]),
    "millis": st.sampled_from([0, 1000]),
    "expressionType": st.sampled_from(["TAG", "SQL92"]),
    "subscription": st.sampled_from(["*", "A || B", "a = 1", "a IS NULL AND b > 1"]),
    "group": st.sampled_from(["C", "P"]),
    "topic": st.sampled_from(["Orders", "Orders", "Canary", "Fresh", "%RETRY%C"]),
    "runs": st.just([[0, 1]]),
    "producerName": st.just("named"),
    "instance": st.sampled_from(["a", "a", "b"]),
    "epoch": known(EPOCHS),
    "stream": st.sampled_from([0, 0, 1, 7]),
    "sequence": st.integers(1, 60),
    "parts": st.just([["Orders", len(ONE_RECORD), [[0, 1]]]]),
    "moves": st.sampled_from([[], [["Orders", 1, 0, 3, None]], [["Orders", 1, 3, 3, 9]]]),
    "sys": st.sampled_from([0, 1, 2, 4, 6, 7]),
    "statsName": st.sampled_from(["TOPIC_PUT_NUMS", "GROUP_GET_NUMS", "BROKER_PUT_NUMS"]),
}
#: The letters of SEND_MESSAGE_V2 as the fields that they stand for.
LETTERS = dict(
    zip(
        "abcdefghijklmn",
        [
            "producerGroup",
            "topic",
            "defaultTopic",
            "queueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
            "properties",
            "reconsumeTimes",
            "unitMode",
            "maxReconsumeTimes",
            "batch",
            "brokerName",
        ],
        strict=True,
    )
)


def honest(name: str, kind: str) -> st.SearchStrategy[Any]:
    """A field's value as an honest client writes it."""
    name = LETTERS.get(name, name)
    lowered = name.lower()
    for part, strategy in HONEST.items():
        if part.lower() in lowered:
            return strategy
    if kind == "int":
        return st.integers(0, 100)
    return st.booleans() if kind == "bool" else st.sampled_from(["x", "C", "Orders"])


def hostile(name: str) -> st.SearchStrategy[ExtValue]:
    """A field's value as it should not be."""
    if "flag" in name.lower() or name in "fh":
        return bits | integers
    if "propert" in name.lower() or name == "i":
        return property_strings | texts
    odd: st.SearchStrategy[ExtValue] = st.sampled_from(
        [None, True, 1.5, -0.0, "1e3", "9" * 5000, b"\xff", [[0, 2**31]], [], "NaN"]
    )
    return integers | texts | odd


def kind_of(field: msgspec.structs.FieldInfo) -> str:
    """The kind of a field: int, bool, list or str."""
    told = str(field.type)
    return next((kind for kind in ("list", "bool", "int") if kind in told), "str")


@st.composite
def exts(draw: st.DrawFn, header: type[Header] | None) -> dict[str, ExtValue]:
    """A header's fields: honest, but for up to two."""
    fields = msgspec.structs.fields(header) if header is not None else ()
    ext: dict[str, ExtValue] = {}
    for field in fields:
        if field.required or draw(st.booleans()):
            ext[field.encode_name] = draw(honest(field.encode_name, kind_of(field)))
    for name in draw(st.lists(st.sampled_from(sorted(ext)), max_size=2)) if ext else ():
        if draw(seldom):
            ext.pop(name, None)
        else:
            ext[name] = draw(hostile(name))
    return ext


@st.composite
def record_bytes(draw: st.DrawFn, topic: str = "Orders", queue_id: int = 0) -> bytes:
    """A record as a producer of ours makes it, perhaps with a byte or two changed."""
    record = bytearray(
        encode_record(
            topic=topic.encode(),
            queue_id=queue_id,
            body=draw(st.binary(max_size=8)),
            properties=draw(property_strings).encode() + draw(st.sampled_from([b"", b"\xff"])),
            flag=draw(st.sampled_from([0, -(2**31)])),
            born_timestamp_ms=draw(st.sampled_from([0, -(2**63), 2**63 - 1])),
            born_host=host_bytes(draw(st.sampled_from(["127.0.0.1", "::1"])), 1),
            reconsume_times=draw(st.sampled_from([0, 0, 0, 2**31 - 1, -1])),
        )
    )
    for place in draw(st.lists(st.integers(0, len(record) - 1), max_size=2)):
        record[place] = draw(st.sampled_from([0, 1, 0x10, 0x20, 0x7F, 0x80, 0xFF]))
    return bytes(record)


batches = st.lists(record_bytes(), min_size=1, max_size=3).map(b"".join)
written_once = st.just(ONE_RECORD) | batches
stock_batches = st.lists(
    st.builds(
        BatchItem,
        st.binary(max_size=4),
        property_strings.map(str.encode) | st.binary(max_size=9),
        st.sampled_from([0, -(2**31), 2**31 - 1]),
    ),
    max_size=3,
).map(batch_encode)

SUBSCRIPTION = {"topic": "Orders", "subString": "*", "codeSet": [1], "subVersion": 1}
HEARTBEAT = {
    "clientID": "c1",
    "producerDataSet": [{"groupName": "P"}],
    "consumerDataSet": [{"groupName": "C", "subscriptionDataSet": [SUBSCRIPTION]}],
}
QUEUE = {"topic": "Orders", "brokerName": "broker-a", "queueId": 1}
LOCK = {"consumerGroup": "C", "clientId": "c1", "mqSet": [QUEUE]}
ASSIGNMENT = {
    "topic": "Orders",
    "consumerGroup": "C",
    "clientId": "c1",
    "strategyName": "AVG",
    "messageModel": "CLUSTERING",
}
BATCH_ACK = {
    "brokerName": "broker-a",
    "acks": [
        {"c": "C", "t": "Orders", "r": "0", "so": 0, "q": 0, "rq": 0, "it": 1, "pt": 1, "b": "Dw=="}
    ],
}
MODE = {"topic": "Orders", "consumerGroup": "C", "mode": "POP", "popShareQueueNum": 1}
TOPIC = {"topicName": "Orders", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
GROUP = {"groupName": "C", "retryMaxTimes": 3, "brokerId": 0}
USER = {"username": "u", "password": "p", "userType": "Super", "userStatus": "enable"}
ENTRY = {"resource": "Topic:*", "actions": ["All"], "sourceIps": ["::1/64"], "decision": "Deny"}
ACL = {"subject": "User:u", "policies": [{"policyType": "Custom", "entries": [ENTRY]}]}
CHECK = {"clientId": "c", "group": "C", "subscriptionData": SUBSCRIPTION}


def _paths(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    items = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    return [path, *(found for key, item in items for found in _paths(item, (*path, key)))]


@st.composite
def documents(draw: st.DrawFn, document: object) -> bytes:
    """A JSON body, every second one with a member spoilt."""
    if draw(st.booleans()):
        return json.dumps(document).encode()
    spoilt = json.loads(json.dumps(document))
    path = draw(st.sampled_from(_paths(document)))
    value = draw(hostile("") | st.just("\ud800"))
    value = value.decode("latin-1") if isinstance(value, bytes) else value
    if not path:
        return json.dumps(value).encode()
    inner = spoilt
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    written = json.dumps(spoilt).encode()
    return written.replace(b'"queueId"', b"queueId") if draw(seldom) else written


settings = st.lists(
    st.tuples(
        st.sampled_from(
            ["autoCreateTopicEnable", "defaultTopicQueueNums", "registerBrokerHeartbeatMillis", "x"]
        ),
        integers.map(str) | st.sampled_from(["true", "", "8"]),
    ),
    max_size=2,
).map(lambda pairs: "\n".join(f"{key}={value}" for key, value in pairs).encode())

H = headers
BODIES: dict[int, st.SearchStrategy[bytes]] = {
    Code.SEND_BATCH_MESSAGE: stock_batches,
    Code.PRODUCE: batches,
    Code.WRITE_ONCE: written_once,
    Code.STAGE: batches,
    Code.HEART_BEAT: documents(HEARTBEAT),
    Code.CHECK_CLIENT_CONFIG: documents(CHECK),
    Code.CREATE_USER: documents(USER),
    Code.UPDATE_USER: documents(USER),
    Code.CREATE_ACL: documents(ACL),
    Code.UPDATE_ACL: documents(ACL),
    Code.UPDATE_BROKER_CONFIG: settings,
    Code.LOCK_BATCH_MQ: documents(LOCK),
    Code.UNLOCK_BATCH_MQ: documents(LOCK),
    Code.QUERY_ASSIGNMENT: documents(ASSIGNMENT),
    Code.SET_MESSAGE_REQUEST_MODE: documents(MODE),
    Code.BATCH_ACK_MESSAGE: documents(BATCH_ACK),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: documents({"topicConfigList": [TOPIC]}),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: documents(GROUP),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: documents({"groupConfigList": [GROUP]}),
}
"""The bodies of requests that have one."""
OTHER_HEADERS: dict[int, type[Header]] = {
    Code.SEND_BATCH_MESSAGE: H.SendMessageV2Header,
    Code.SEND_REPLY_MESSAGE: H.SendMessageHeader,
    Code.SEND_REPLY_MESSAGE_V2: H.SendMessageV2Header,
    Code.LITE_PULL_MESSAGE: H.PullMessageHeader,
}
"""The headers of requests that have that of another one, and not one named after them."""


def header_of(code: RequestCode) -> type[Header] | None:
    """The header of a request; None if it has none."""
    named = "".join(map(str.capitalize, code.name.split("_")))
    return OTHER_HEADERS.get(code) or getattr(headers, f"{named}Header", None)


#: Code -> its header and its body. What the broker serves is all here; `test_packets` holds that.
REQUESTS = {code: (header_of(code), BODIES.get(code)) for code in Code if code not in REASONS}
#: Requests that write into the log, which are tried more often.
WRITERS = (
    *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.PRODUCE),
    *(Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION, Code.UPDATE_CONSUMER_OFFSET),
    *(Code.UPDATE_AND_CREATE_TOPIC, Code.PULL_MESSAGE, Code.HEART_BEAT, Code.LOCK_BATCH_MQ),
    *(Code.POP_MESSAGE, Code.ACK_MESSAGE, Code.CHANGE_MESSAGE_INVISIBLETIME),
    *(Code.REGISTER_PRODUCER, Code.WRITE_ONCE, Code.STAGE, Code.END_STAGED),
)


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame with a request, its header in any encoding, sometimes with a byte changed."""
    code = draw(st.sampled_from([*WRITERS, *sorted(REQUESTS)]))
    header, bodies = REQUESTS[code]
    ext = draw(exts(header))
    body = draw(bodies if bodies is not None else st.binary(max_size=16))
    command = Command(
        draw(st.integers(-1, 40_000)) if draw(seldom) and draw(seldom) else code,
        ext,
        body,
        remark=draw(st.none() | st.just("remark")),
        opaque=draw(st.integers(1, 1000) | st.sampled_from([-1, 2**31 - 1, -(2**31)])),
        flag=draw(st.sampled_from([0, 0, 0, 0, 2, 1, 3, -1, 2**31 - 1])),
        language=draw(st.sampled_from([Language.JAVA, Language.CPP, Language.PYTHON, None])),
        encoding=draw(st.sampled_from(HeaderEncoding)),
    )
    frame = bytearray(encoded(command))
    for place in draw(st.lists(st.integers(4, len(frame) - 1), max_size=1)):
        if draw(seldom):
            frame[place] = draw(st.integers(0, 255))
    return bytes(frame)


def encoded(command: Command) -> bytes:
    """The command's bytes: as msgpack if its encoding can't hold it, else without a header."""
    for encoding in (command.encoding, HeaderEncoding.MSGPACK, HeaderEncoding.JSON):
        command.encoding = encoding
        try:
            return b"".join(encode_frame(command))
        except FrameError:
            continue
    command.ext = {}
    return b"".join(encode_frame(command))


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**64  # else msgpack has no such number


# -- raw entries ------------------------------------------------------------------------------

rows = st.tuples(texts, texts, integers, integers)
queue_rows = st.lists(st.tuples(texts, integers), max_size=3)
configs = st.builds(
    TopicConfig, texts, integers | st.just(4), integers | st.just(4), integers, integers
)
group_configs = st.builds(SubscriptionGroupConfig, texts, retry_max_times=integers)
times = integers | st.just(1_790_000_000_500)
small = st.integers(-1, 6)
fences = st.sampled_from([1_790_000_000_500, 1_790_000_000_501, 0, -1, 2**63]) | integers
pop_bits = st.binary(max_size=3) | st.just(b"\xff" * 70_000)
pop_names = (st.sampled_from(["C", "P", ""]), st.sampled_from(["Orders", "Canary", ""]))
pop_rows = st.builds(
    popping.PopQueue,
    small | integers,
    small | integers,
    small | integers,
    small | integers,
    pop_bits,
    st.lists(st.tuples(fences, small | integers, pop_bits), max_size=2),
)
Control = control.Control
controls: st.SearchStrategy[Control] = st.one_of(
    st.builds(control.PutTopics, st.lists(configs, max_size=2), times),
    st.builds(control.DeleteTopic, texts, times),
    st.builds(control.PutGroups, st.lists(group_configs, max_size=2), times),
    st.builds(control.DeleteGroup, texts, st.booleans(), times),
    st.builds(control.PutSettings, st.dictionaries(texts, texts, max_size=2), times),
    st.builds(control.CommitOffsets, st.lists(rows, max_size=3)),
    st.builds(control.LockQueues, texts, texts, queue_rows, times),
    st.builds(control.UnlockQueues, texts, texts, queue_rows),
    st.builds(control.DropHead, integers, integers),
    st.builds(control.RegisterProducer, texts | st.just("named"), texts | st.just("a"), times),
    st.builds(
        control.ClaimProducer,
        texts | st.just("named"),
        texts | st.just("a"),
        texts | st.just("ann"),
        st.booleans(),
        times,
    ),
    st.builds(control.ForgetProducers, st.lists(texts | st.just("named"), max_size=3), times),
    st.builds(
        popping.PopMessages,
        texts | st.just("C"),
        texts | st.just("Orders"),
        st.lists(pop_rows, max_size=3),
        times,
        times,
        st.sampled_from(["", "a"]),
        st.booleans(),
    ),
    st.builds(
        popping.SettlePopped,
        st.lists(
            st.builds(popping.PopAck, *pop_names, small, fences, small | integers, pop_bits),
            max_size=3,
        ),
        st.lists(
            st.builds(
                popping.PopChange,
                *pop_names,
                small,
                fences,
                small | integers,
                pop_bits,
                times,
                st.booleans(),
                st.booleans(),
            ),
            max_size=3,
        ),
        times,
    ),
    st.builds(
        control.PutRequestMode, texts, texts, st.sampled_from(["POP", "PULL", "x"]), integers
    ),
)


def _packed(encode: Callable[[Any], bytes], value: Any) -> bytes:
    try:
        return encode(value)
    except Exception:
        return b"\xc1"  # what msgpack never writes


control_bodies = st.one_of(
    controls.map(lambda change: _packed(control.encode_control, change)),
    st.tuples(st.sampled_from(["put_topics", "commit_offsets", "Nope!", ""]), rows | texts).map(
        lambda document: _packed(msgspec.msgpack.encode, document)
    ),
    st.binary(max_size=40),
)


@st.composite
def placed_records(draw: st.DrawFn, body_position: int, ends: dict[tuple[str, int], int]) -> bytes:
    """Records that a leader might have placed: some follow on, some don't, some are spoilt."""
    body = b""
    moved = draw(st.integers(0, 3)) == 3
    count = draw(st.integers(1, 3))
    for number in range(count):
        is_note = moved and number == 0
        topic = "RMQ_SYS_MOVE_OP_TOPIC" if is_note else draw(st.sampled_from(TOPICS))
        queue_id = 0 if is_note else draw(st.integers(0, 1))
        end = ends.get((topic, queue_id), 0)
        offset = draw(st.sampled_from([0, end + 1, 2**62])) if draw(seldom) else end
        move = draw(st.sampled_from(_MOVES)) if is_note else draw(st.binary(max_size=8))
        properties = draw(property_strings).encode() + draw(st.sampled_from([b"", b"", b"\xfe"]))
        record = encode_record(
            topic=topic.encode(),
            queue_id=-1 if draw(seldom) else queue_id,
            body=move,
            properties=properties,
            born_timestamp_ms=0,
            born_host=host_bytes("127.0.0.1", 1),
            store_host=host_bytes(draw(st.sampled_from(["127.0.0.1", "::1"])), 1),
            queue_offset=offset,
            physical_offset=body_position + len(body),
            store_timestamp_ms=draw(st.sampled_from([1_790_000_000_000] * 5 + [-1, 2**63 - 1])),
        )
        if not draw(seldom):
            ends = ends | {(topic, queue_id): offset + 1}
        body += record
    spoilt = bytearray(body)
    for place in draw(st.lists(st.integers(0, len(spoilt) - 1), max_size=1)):
        if draw(seldom):
            spoilt[place] = draw(st.sampled_from([0, 1, 0x10, 0x20, 0x30, 0x7F, 0x80, 0xFF]))
    return bytes(spoilt[: draw(st.sampled_from([len(spoilt)] * 9 + [len(spoilt) // 2]))])


once_notes = st.builds(
    Once,
    st.just("named") | texts,
    known(EPOCHS) | integers.filter(_fits),
    st.sampled_from([0, 1, 8, -1]),
    st.integers(1, 20) | integers.filter(_fits),
    st.sampled_from(["C", ""]),
    st.lists(
        st.builds(OffsetMove, st.sampled_from(["Orders", "None"]), small, small, small),
        max_size=2,
    ),
    st.just([]),
)
given_up_notes = st.builds(
    GivenUp,
    st.lists(
        st.builds(
            popping.PopAck,
            st.sampled_from(["C", "D"]),
            st.sampled_from(["Orders", "None"]),
            small,
            small | integers.filter(_fits),
            small,
            st.binary(max_size=4),
        ),
        max_size=2,
    ),
    st.sampled_from([0, 1_790_000_000_000, -1, 2**63 - 1]),
    st.just([]),
)


@st.composite
def placed_writes(draw: st.DrawFn, body_position: int, ends: dict[tuple[str, int], int]) -> bytes:
    """Entries of named producers, or dead letters, as a leader might place them, some spoilt."""
    topics = draw(st.lists(st.sampled_from(["Orders", "Canary", "%RETRY%C"]), max_size=3))
    contents = [(topic, b"once") for topic in topics]
    sizes = [len(_placed(topic, 0, body, 0)) for topic, body in contents]
    if draw(seldom):
        sizes.append(draw(st.sampled_from([0, -1, 7, 2**63 - 1])))
    kind = draw(st.sampled_from(("once", "decision", "staged", "given up")))
    if kind == "once":
        note = encode_note(msgspec.structs.replace(draw(once_notes), sizes=sizes))
        notes = [(OP_TOPIC, MARK), (OP_TOPIC, note)]
    elif kind == "decision":
        once = msgspec.structs.replace(draw(once_notes), sizes=sizes)
        batch = draw(st.sampled_from([0, 1, -1, 2**63 - 1]))
        note = encode_note(Decision(*msgspec.structs.astuple(once), batch, b"what"))
        notes = [(OP_TOPIC, DECISION_MARK), (OP_TOPIC, note)]
    elif kind == "staged":
        notes = [(OP_TOPIC, STAGED_MARK), (OP_TOPIC, encode_note(StagedNote(sizes)))]
    else:
        given_up = msgspec.structs.replace(draw(given_up_notes), sizes=sizes)
        notes = [(OP_TOPIC, GIVEN_UP_MARK), (OP_TOPIC, encode_note(given_up))]
    body, ends = b"", dict(ends)
    for topic, content in [*notes, *contents]:
        if draw(seldom) and draw(seldom):
            continue
        offset = ends.get((topic, 0), 0)
        ends[topic, 0] = offset + 1
        body += _placed(topic, offset, content, body_position + len(body))
    return body


def _placed(topic: str, offset: int, body: bytes, position: int) -> bytes:
    return encode_record(
        topic=topic.encode(),
        queue_id=0,
        body=body,
        properties=b"",
        born_timestamp_ms=0,
        born_host=host_bytes("127.0.0.1", 1),
        store_host=host_bytes("127.0.0.1", 1),
        queue_offset=offset,
        physical_offset=position,
        store_timestamp_ms=1_790_000_000_000,
    )


_MOVES = (
    *(b"SCHEDULE_TOPIC_XXXX 0 0-1", b"SCHEDULE_TOPIC_XXXX 0 5-2", b"SCHEDULE_TOPIC_XXXX 1 0-9"),
    *(b"rmq_sys_wheel_timer 0 0-1", b"rmq_sys_wheel_timer 0 0-99999999999999", b"", b"x"),
    *(b"RMQ_SYS_TRANS_HALF_TOPIC 0 0-1 0-1", b"RMQ_SYS_TRANS_HALF_TOPIC 0", b"\xff 0 0-1"),
    b"SCHEDULE_TOPIC_XXXX 0 " + b"9" * 5000,
)
