"""The two JSON dialects of RocketMQ's bodies, read and written.

The loose one (fastjson's default) is no JSON: numeric map keys stand unquoted, and where a map is
keyed by message queues, the queue itself stands as an object in the key's place::

    {"brokerAddrs":{0:"10.0.0.1:10911"}}
    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":7}}}

The standard one quotes such keys, a queue as its own JSON text, and escapes what is not ASCII.
Both sort members by name. The reader takes either, even mixed; nesting is bounded.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from operator import itemgetter

import msgspec

from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.limits import JSON_DEPTH_MAX
from dledger.remoting.numbers import Int32

_NULL = b"null"
_NULL_VALUE = re.compile(rb"[:,\[]null")
_sorted_encoder = msgspec.json.Encoder(order="sorted")
#: Encoders of scalars, standard and loose. Made once: a body has thousands of scalars.
_encoders = (json.JSONEncoder(), json.JSONEncoder(ensure_ascii=False))
_LISTS = (list, tuple, set, frozenset)
_CONTAINERS = (Mapping, *_LISTS)
_PARTS_PER_STEP = 64
_ITEMS_PER_STEP = 32
_SPACE = re.compile(r"[ \t\r\n]*")
_INTEGER = re.compile(r"-?\d{1,19}")


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """A queue of a topic on one broker group. Queues sort as those of stock clients do."""

    topic: str
    broker_name: str
    queue_id: Int32


def all_queues(topic: str) -> MessageQueue:
    """A queue that stands for all queues of a topic, where a member tells which it has paused."""
    return MessageQueue(topic, "", -1)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


def parse(data: Buffer) -> object:
    """Read a body in either dialect into dicts, lists and scalars; null members are left out.

    A map's key is a str, an int if it stood unquoted, or a MessageQueue. Raises BadInput.
    """
    try:
        text = str(data, "utf-8")
        value, end = _value(text, _skip(text, 0), JSON_DEPTH_MAX)
        if _skip(text, end) != len(text):
            raise BadInput(f"the body has more than one JSON value: character {end}")
    except ValueError as error:
        raise BadInput(f"the body is not JSON, in either dialect: {error}") from error
    return value


def write_standard(value: object) -> bytes:
    """Write structs, maps, lists and scalars, without members that are None: the standard way."""
    # The fast way first: a broker with 10,000 topics registers with 1.5 MB, and the loop waits.
    with suppress(TypeError):
        written = _sorted_encoder.encode(value)
        if written.isascii() and not (_NULL in written and _NULL_VALUE.search(written)):
            return written
    # Members that are None are left out, letters escaped, and maps keyed by queues written.
    return _written(value, loose=False).encode()


def write_loose(value: object) -> bytes:
    """Write structs, maps, lists and scalars, without members that are None: the loose way."""
    return _written(value, loose=True).encode()


def written_steps(value: object, *, loose: bool) -> Iterator[bytes]:
    """Write a value in short steps: joined, the pieces are what would be written at once."""
    if _is_short(value):
        yield write_loose(value) if loose else write_standard(value)
        return
    value = _members(value)
    if isinstance(value, Mapping):
        items = list[tuple[str, object]]()
        for key, item in value.items():
            items.append((_written_key(key, loose), item))
            yield b""
        items.sort(key=itemgetter(0))
        for number, (key, item) in enumerate(items):
            yield f"{',' if number else '{'}{key}:".encode()
            yield from written_steps(item, loose=loose)
        yield b"}"
    elif isinstance(value, _LISTS):
        left, opening = iter(value), b"["
        while some := list[object](islice(left, _ITEMS_PER_STEP)):
            yield opening
            yield from _items_steps(some, loose=loose)
            opening = b","
        yield b"]"


def _items_steps(items: list[object], *, loose: bool) -> Iterator[bytes]:
    """A list without its brackets."""
    if _is_short(items):
        yield (write_loose(items) if loose else write_standard(items))[1:-1]
        return
    for number, item in enumerate(items):
        if number:
            yield b","
        yield from written_steps(item, loose=loose)


def _is_short(value: object) -> bool:
    """Whether it has so few parts that writing them is one step."""
    parts = deque((value,))
    for _ in range(_PARTS_PER_STEP):
        if not parts:
            return True
        part = parts.popleft()
        if isinstance(part, msgspec.Struct):
            parts.extend(getattr(part, name) for name in part.__struct_fields__)
        elif isinstance(part, _CONTAINERS):
            if len(part) > _PARTS_PER_STEP:
                return False
            parts.extend(part.values() if isinstance(part, Mapping) else part)
    return not parts


def _members(value: object) -> object:
    """A struct as a map, without members that are None; all else as it is."""
    if not isinstance(value, msgspec.Struct):
        return value
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    members = ((encoded, getattr(value, name)) for encoded, name in names)
    return {encoded: item for encoded, item in members if item is not None}


def _written(value: object, loose: bool) -> str:
    value = _members(value)
    if isinstance(value, Mapping):
        items = sorted((_written_key(key, loose), item) for key, item in value.items())
        return "{" + ",".join(f"{key}:{_written(item, loose)}" for key, item in items) + "}"
    if isinstance(value, _LISTS):
        return "[" + ",".join(_written(item, loose) for item in value) + "]"
    return _written_scalar(value, loose)


def _written_scalar(value: object, loose: bool) -> str:
    if value.__class__ is int:
        return str(value)
    return _encoders[loose].encode(value)


def _written_key(key: object, loose: bool) -> str:
    if isinstance(key, str):
        return _written_scalar(key, loose)
    bare = _written(key, loose)
    return bare if loose else _written_scalar(bare, loose)


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _value(text: str, position: int, depth_left: int) -> tuple[object, int]:
    """The value that begins at `position`, and the position after it."""
    if not depth_left:
        raise ValueError(f"nested deeper than {JSON_DEPTH_MAX}")
    opening = text[position : position + 1]
    if opening == "{":
        return _map(text, position, depth_left)
    if opening == "[":
        return _list(text, position, depth_left)
    value, end = _decoder.raw_decode(text, position)
    if isinstance(value, str) and not value.isascii():
        value.encode()  # half of an escaped pair is no text: UnicodeEncodeError is a ValueError
    return value, end


def _map(text: str, position: int, depth_left: int) -> tuple[dict[object, object], int]:
    members: dict[object, object] = {}
    position = _skip(text, position + 1)
    if text.startswith("}", position):
        return members, position + 1
    while True:
        key, position = _key(text, position, depth_left)
        value, position = _value(text, _after(text, position, ":"), depth_left - 1)
        if value is not None:
            members[key] = value
        position = _skip(text, position)
        if text.startswith("}", position):
            return members, position + 1
        position = _after(text, position, ",")


def _list(text: str, position: int, depth_left: int) -> tuple[list[object], int]:
    items: list[object] = []
    position = _skip(text, position + 1)
    if text.startswith("]", position):
        return items, position + 1
    while True:
        value, position = _value(text, position, depth_left - 1)
        items.append(value)
        position = _skip(text, position)
        if text.startswith("]", position):
            return items, position + 1
        position = _after(text, position, ",")


def _key(text: str, position: int, depth_left: int) -> tuple[object, int]:
    """A map key: a string, a bare integer, or a message queue as an object or as its JSON text."""
    if integer := _INTEGER.match(text, position):
        return int(integer.group()), integer.end()
    key, end = _value(text, position, depth_left - 1)
    if isinstance(key, str) and key.startswith("{"):
        with suppress(ValueError):  # else it is a text that only begins so
            key, _ = _value(key, 0, depth_left - 1)
    if isinstance(key, dict):
        try:
            return msgspec.convert(key, MessageQueue, strict=False), end
        except msgspec.ValidationError as error:
            raise ValueError(f"a map key is not a message queue: {error}") from error
    if isinstance(key, str):
        return key, end
    raise ValueError(f"a map key is {key!r}: character {position}")


def _after(text: str, position: int, sign: str) -> int:
    """The position after `sign` and the blanks around it."""
    position = _skip(text, position)
    if not text.startswith(sign, position):
        raise ValueError(f"expected {sign!r}: character {position}")
    return _skip(text, position + 1)
