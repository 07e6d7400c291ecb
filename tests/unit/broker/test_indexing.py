"""Units that an entry of messages adds to the queues, compared with reading it record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.remoting.message import host_bytes, properties_encode, tags_code
from dledger.remoting.names import HALF_TOPIC, OP_TOPIC
from dledger.remoting.record import Record, encode_record, walk
from mqbroker import limits
from mqbroker.state.aside import Unusable
from mqbroker.state.dedup import StoredCopy, dedup_key
from mqbroker.state.derived import indexing
from mqbroker.state.derived.entry_index import EntryIndex
from mqbroker.state.derived.indexing import index_entry, index_records, index_sends
from mqbroker.state.derived.keys import encode_keys
from mqbroker.state.derived.properties import code_of_tags, codes_of_tags
from mqbroker.state.moves import Move, encode_move

HOST4, HOST6 = host_bytes("10.0.0.1", 99), host_bytes("::1", 99)
POSITION = 4096 + 48


def utf_8(text: str) -> bytes:
    return text.encode()


class Message(NamedTuple):
    body: bytes
    tag: str | None
    key: str | None
    ipv6: bool
    expires_ms: int | None = None


messages = st.builds(
    Message,
    body=st.binary(max_size=40),
    tag=st.sampled_from([None, "TagA", "TagB", "ä", "TAGS"]),
    key=st.sampled_from([None, "k1", "KEY2"]),
    ipv6=st.booleans(),
    expires_ms=st.sampled_from([None, None, 0, 77, 78, 87, 1077]),
)
runs = st.lists(
    st.tuples(st.integers(0, 5), st.lists(messages, min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)


def encode(runs: list[tuple[int, list[Message]]], reconsume_times: int = 0) -> memoryview:
    """An entry's body as a leader writes it: offsets of each queue go up from 1000 * queue id."""
    out = bytearray()
    ends: dict[int, int] = {}
    for queue_id, batch in runs:
        for message in batch:
            offset = ends.setdefault(queue_id, 1000 * queue_id)
            ends[queue_id] += 1
            properties = {"MYTAGS": "no", "x": "TAGS"}
            properties |= {"TAGS": message.tag} if message.tag else {}
            properties |= {"UNIQ_KEY": message.key} if message.key else {}
            if message.expires_ms is not None:
                properties["EXPIRES_AT_MS"] = str(message.expires_ms)
            out += encode_record(
                topic=b"Orders",
                queue_id=queue_id,
                body=message.body,
                properties=properties_encode(properties),
                born_timestamp_ms=1,
                born_host=HOST6 if message.ipv6 else HOST4,
                store_host=HOST4,
                queue_offset=offset,
                physical_offset=POSITION + len(out),
                store_timestamp_ms=77,
                reconsume_times=reconsume_times,
            )
    return memoryview(bytes(out))


def rows(index: EntryIndex) -> list[tuple[int, ...]]:
    return [
        (run.queue_id, run.first_offset + number, *(int(value) for value in unit))
        for run in index.runs
        for number, unit in enumerate(run.decoded().tolist())
    ]


@given(runs)
@settings(max_examples=200, deadline=None)
def test_every_record_gets_its_unit(batch: list[tuple[int, list[Message]]]) -> None:
    """A unit has the queue, offset, position, size, end, tags code and time of its record."""
    body = encode(batch)
    sent = [message for _, run in batch for message in run]
    expected = []
    for start, message in zip(walk(body), sent, strict=True):
        record = Record(body[start:])
        code = tags_code(message.tag) if message.tag else 0
        lives_on = {None: 0, 0: 1, 77: 1, 78: 2, 87: 2, 1077: 101}[message.expires_ms]
        place = (record.queue_id, record.queue_offset, record.physical_offset)
        expected.append((*place, record.size, 0, lives_on, code, 77))
    index = index_records(body, POSITION)
    assert rows(index) == expected
    key = batch[0][1][0].key
    copy = StoredCopy(POSITION, len(body))
    assert list(index.copies) == ([(dedup_key(b"Orders", key.encode()), copy)] if key else [])
    assert (index.topic, index.store_timestamp_ms) == ("Orders", 77)


class Sent(NamedTuple):
    """A message that was sent by itself; `properties` as its client and the broker wrote them."""

    topic: str
    properties: str
    body: bytes
    reconsume_times: int
    ipv6: bool


unique_keys = st.one_of(
    st.sampled_from(["", "k", "A" * 32, "B" * 32, "C" * 32, "K\x00" * 16, "\x01" * 32, "x" * 300]),
    st.integers(0, 10**6).map("{:032X}".format),
)
odd_properties = st.lists(
    st.sampled_from(
        [
            *("TAGS\x01a", "TAGS\x01b c", "KEYS\x01one two one", "KEYS\x01", "WAIT\x01true"),
            *("XUNIQ_KEY\x01no", "UNIQ_KEY\x01twice", "v\x01UNIQ_KEY\x01in", "EXPIRES_AT_MS\x0178"),
            *("EXPIRES_AT_MS\x01x", "EXPIRES_AT_MS\x01", "", "ä\x01ö", "no end"),
            *("KEYS\x01 a  b ", "KEYS\x01" + " ".join(map(str, range(40)))),
            *("TAGS\x01", "TAGS\x01ä"),
            *("KEYS\x01" + "k" * 99 + " " + "k" * 9, "EXPIRES_AT_MS\x01" + "9" * 19),
        ]
    ),
    max_size=3,
)


def written(front: list[str], key: str | None, back: list[str], *, ended: bool) -> str:
    """A properties string, which Java ends with a separator, and others do not."""
    middle = [] if key is None else [f"UNIQ_KEY\x01{key}"]
    return "\x02".join([*front, *middle, *back]) + "\x02" * ended


alike = st.builds(
    lambda front, back, keys, ended: [written(front, key, back, ended=ended) for key in keys],
    odd_properties,
    odd_properties,
    st.lists(st.integers(0, 10**6).map("{:032X}".format), min_size=1, max_size=6),
    st.booleans(),
)
"""Messages with properties as one client gives them."""
unlike = st.lists(
    st.builds(
        written, odd_properties, st.none() | unique_keys, odd_properties, ended=st.booleans()
    ),
    min_size=1,
    max_size=4,
)
nearly_alike = st.lists(
    st.builds(
        "{}\x02UNIQ_KEY\x01{}{}".format,
        st.sampled_from(["x\x01abcdefghi", "XUNIQ_KEY\x01a", "UNIQ_KEY\x01ab", "KEYS\x01abcdef"]),
        st.sampled_from(["A" * 32, "A" * 32, "B" * 32, "A" * 15 + "\x02" + "B" * 16, "\x01" * 32]),
        st.sampled_from(["\x02", "\x02", "\x02x\x01y\x02", "\x01", "z\x02"]),
    ),
    min_size=2,
    max_size=3,
)
"""Each is one byte away from what may be read at once: all parts stand at the same places."""
sends = st.lists(
    st.tuples(
        st.sampled_from(["Orders", "Orderz", "T" * 127, "%DLQ%g"]),
        st.one_of(alike, unlike, nearly_alike),
        st.binary(max_size=20),
        st.sampled_from([0, 0, 0, 1, 1 << 24]),
        st.booleans(),
    ),
    min_size=1,
    max_size=3,
).map(
    lambda groups: [
        Sent(topic, properties, body, times, ipv6)
        for topic, group, body, times, ipv6 in groups
        for properties in group
    ]
)


def laid(sent: Sequence[Sent], jump: int = 0) -> memoryview:
    """The records, one behind the other; the fourth leaves out `jump` offsets of its queue."""
    out = bytearray()
    ends: dict[str, int] = {}
    for number, each in enumerate(sent):
        offset = ends[each.topic] = ends.get(each.topic, 6) + 1 + (jump if number == 3 else 0)
        out += encode_record(
            topic=each.topic.encode(),
            queue_id=3,
            body=each.body,
            properties=each.properties.encode(),
            born_timestamp_ms=1,
            born_host=HOST6 if each.ipv6 else HOST4,
            store_host=HOST4,
            queue_offset=offset,
            physical_offset=POSITION + len(out),
            store_timestamp_ms=77,
            reconsume_times=each.reconsume_times,
        )
    return memoryview(bytes(out))


@given(sends, st.sampled_from([0, 0, indexing.FEW]))
@settings(max_examples=300, deadline=None)
def test_sends_in_one_entry_say_what_they_would_say_alone(sent: list[Sent], few: int) -> None:
    """Sends in one entry are indexed as alone, with properties alike or unlike."""
    body = laid(sent)
    starts = walk(body)
    alone = [
        index_records(body[start:end], POSITION + start)
        for start, end in zip(starts, [*starts[1:], len(body)], strict=True)
    ]

    with mock.patch.object(indexing, "FEW", few):
        together = index_sends(body, POSITION)

    assert [part.topic for part in together for run in part.runs for _ in range(run.messages)] == [
        each.topic for each in sent
    ]
    assert [copy for part in together for copy in part.copies] == [
        copy for part in alone for copy in part.copies
    ]
    assert [row for part in together for row in rows(part)] == [
        row for part in alone for row in rows(part)
    ]
    assert encode_keys([key for part in together for key in part.keys]) == encode_keys(
        [key for part in alone for key in part.keys]
    )
    assert {part.store_timestamp_ms for part in together} == {77}


@given(sends, st.sampled_from([0, 0, 1]))
@settings(max_examples=200, deadline=None)
def test_a_move_says_the_same_whether_its_messages_are_read_as_a_table_or_one_by_one(
    sent: list[Sent], jump: int
) -> None:
    """The messages are of one topic, as a staged entry's, or of several; offsets may have a gap."""
    move = Move(HALF_TOPIC, 0, ((7, 8),))
    told = Sent(OP_TOPIC, written([], "A" * 32, [], ended=True), encode_move(move), 0, False)
    body = laid([told, *sent], jump)
    found: list[object] = []
    for few in (0, len(sent) + 1):
        with mock.patch.object(indexing, "FEW", few):
            try:
                op, parts = index_entry(body, POSITION)
            except Unusable:
                found.append("unusable")
                continue
        assert op == move
        assert not any(part.copies for part in parts)
        found.append([(part._replace(keys=()), encode_keys(part.keys)) for part in parts])
    assert found[0] == found[1]


batches = st.tuples(
    st.sampled_from(["Orders", "T" * 127, "%DLQ%g"]),
    st.one_of(alike, unlike, nearly_alike),
    st.lists(st.sampled_from([0, 0, 1]), min_size=1, max_size=4),
)


@given(batches)
@settings(max_examples=200, deadline=None)
def test_a_batch_says_the_same_whether_read_as_a_table_or_one_by_one(
    batch: tuple[str, list[str], list[int]],
) -> None:
    """The few are read one by one, since a table costs more; the replicas must not differ by it."""
    topic, properties, queues = batch
    out = bytearray()
    ends: dict[int, int] = {}
    for number, text in enumerate(properties):
        queue_id = queues[number % len(queues)]
        offset = ends[queue_id] = ends.get(queue_id, 6) + 1
        out += encode_record(
            topic=topic.encode(),
            queue_id=queue_id,
            body=b"body",
            properties=text.encode(),
            born_timestamp_ms=1,
            born_host=HOST4,
            store_host=HOST4,
            queue_offset=offset,
            physical_offset=POSITION + len(out),
            store_timestamp_ms=77,
        )
    found = []
    for few in (0, len(properties)):
        with mock.patch.object(indexing, "FEW", few):
            index = index_records(memoryview(bytes(out)), POSITION)
        found.append((index._replace(keys=()), encode_keys(index.keys)))
    assert found[0] == found[1]


@given(st.lists(st.one_of(st.binary(min_size=1), st.text(min_size=1).map(utf_8)), max_size=6))
def test_the_codes_of_many_tags_are_those_of_each(tags: list[bytes]) -> None:
    """Codes of tags are Java's, also without UTF-8, computed together or one by one."""
    tags = [tag.replace(b"\x02", b"2") for tag in tags]
    expected = [code_of_tags(tag) for tag in tags]
    assert codes_of_tags(tags) == expected
    with mock.patch.object(limits, "TAGS_ONE_BY_ONE_BYTES_MAX", -1):
        assert tags == [] or codes_of_tags(tags) == expected


def test_a_message_that_was_sent_back_is_not_known_by_its_key() -> None:
    """A message that was sent back is not known by its key: each try is its own message."""
    body = encode([(0, [Message(b"x", None, "k1", ipv6=False)])], reconsume_times=1)
    assert not index_records(body, POSITION).copies


@pytest.mark.parametrize("count", [1, 3])
def test_records_of_another_place_are_refused(count: int) -> None:
    """Records know their positions; if they don't agree, the log is not to be trusted."""
    body = encode([(0, [Message(b"x", None, None, ipv6=False)] * count)])
    with pytest.raises(Unusable, match="another position"):
        index_records(body, POSITION + 8)


def test_a_gap_in_the_queue_offsets_is_refused() -> None:
    """Consecutive records of a queue have consecutive offsets."""
    message = Message(b"x", None, None, ipv6=False)
    body = bytearray(encode([(0, [message] * 3)]))
    body[len(body) // 3 + 27] += 1
    with pytest.raises(Unusable, match="skips queue offsets"):
        index_records(memoryview(body), POSITION)
