"""Reads a REGISTER_BROKER request (103) of any form, in short steps. Pure.

The header names the broker; the body lists its topics, as JSON or, with `compressed`, as a zlib
stream of length-prefixed pieces: data version (JSON), number of topics, each topic as text
`name readQueues writeQueues perm filterType`, filter servers (JSON), and more that we don't need.
`bodyCrc32` covers the body as sent. Source: RocketMQ's RegisterBrokerBody; reference in its 5.3.3.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache

import msgspec

from dledger.addresses import parse_address
from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import BadInput
from dledger.remoting.bodies import DataVersion, RegisterBrokerBody, TopicConfig, decode_body
from dledger.remoting.headers import RegisterBrokerHeader
from dledger.remoting.names import PERM_READ_WRITE
from mqnamesrv import limits
from mqnamesrv.door import Trust
from mqnamesrv.routing.groups import Registration
from mqnamesrv.routing.topics import Steps

_CRC_MASK = 0x7FFF_FFFF
_WORD = struct.Struct(">i")
_WORD_BYTES = _WORD.size
_INFLATED_PER_STEP = 64 * 1024
_OBJECTS_MAX = 4 * limits.TOPICS_PER_GROUP_MAX
"""JSON objects of a registration: topics, their attributes, and the mappings of static topics from
stock brokers."""


class _Topics(msgspec.Struct, rename="camel"):
    """A broker's topics, each still as it was sent."""

    topic_config_table: dict[str, msgspec.Raw] = {}
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class _Body(msgspec.Struct, rename="camel"):
    """Body of REGISTER_BROKER, of which topics alone are read."""

    topic_config_serialize_wrapper: _Topics = msgspec.field(default_factory=_Topics)


_decoder = msgspec.json.Decoder(_Body, strict=False)


def read_registration(
    header: RegisterBrokerHeader, body: Buffer, trust: Trust = Trust.OPEN
) -> Steps[Registration]:
    """Everything that a registration says, as far as its sender is trusted.

    BadInput if the body is damaged or malformed.
    """
    if header.body_crc32:
        computed = crc32(body) & _CRC_MASK
        if computed != header.body_crc32:
            raise BadInput(f"bodyCrc32 is {header.body_crc32}, but the body's is {computed}")
        yield
    _check_names(header)
    read = _read_compressed(body) if header.compressed else _read_json(body)
    data_version, listed = yield from read
    topics, left_out = dict[str, TopicConfig](), list[str]()
    for name, topic in listed.items():
        if _fits(name, topic):
            topics[name] = topic
        else:
            left_out.append(name)
        yield
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        term=None if trust is Trust.UNSIGNED else header.term,
        expiry_s=expiry_s(header.heartbeat_timeout_millis),
        data_version=data_version,
        topics=topics,
        left_out=tuple(left_out),
        permission=PERM_READ_WRITE if header.permission is None else header.permission,
        since=None if trust is Trust.UNSIGNED else header.since,
        proven=trust is Trust.PROVEN,
    )


def _check_names(header: RegisterBrokerHeader) -> None:
    """Raise BadInput for names and addresses that clients could not use."""
    for what, name in (("cluster", header.cluster_name), ("broker", header.broker_name)):
        if not 0 < len(name) <= limits.NAME_CHARACTERS_MAX or not name.isprintable():
            raise BadInput(
                f"{what} name {name[:80]!r} is not 1 to {limits.NAME_CHARACTERS_MAX} characters "
                "that can be shown"
            )
    parse_address(header.broker_addr)
    if header.ha_server_addr:
        parse_address(header.ha_server_addr)


def _fits(name: str, topic: TopicConfig) -> bool:
    """Whether a topic can be one, so that a client may read its route. One that can't is left out:
    its broker's others are no worse for it."""
    most = limits.QUEUES_PER_TOPIC_MAX
    return (
        0 < len(name) <= limits.TOPIC_CHARACTERS_MAX
        and name.isprintable()
        and 0 <= topic.read_queue_nums <= most
        and 0 <= topic.write_queue_nums <= most
        and 0 <= topic.perm <= limits.PERM_MAX
    )


def expiry_s(timeout_millis: int | None) -> float:
    """The silence after which a broker that asks for this timeout is dropped."""
    if timeout_millis is None or timeout_millis <= 0:
        return limits.BROKER_EXPIRY_S
    asked_s = timeout_millis / 1000
    return min(max(asked_s, limits.BROKER_EXPIRY_MIN_S), limits.BROKER_EXPIRY_MAX_S)


def _read_json(body: Buffer) -> Steps[tuple[DataVersion, dict[str, TopicConfig]]]:
    if not len(body):
        return DataVersion(), {}
    objects = bytes(body).count(b"{")
    if objects > _OBJECTS_MAX:
        raise BadInput(f"the body has {objects} objects; up to {_OBJECTS_MAX} are read")
    try:
        wrapper = _decoder.decode(body).topic_config_serialize_wrapper
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # In the loose dialect, perhaps, which is short.
        _check_loose(body)
        listed = decode_body(RegisterBrokerBody, body).topic_config_serialize_wrapper
        return listed.data_version, listed.topic_config_table
    _check_count(len(wrapper.topic_config_table))
    yield
    topics = dict[str, TopicConfig]()
    for name, raw in wrapper.topic_config_table.items():
        if len(raw) > limits.TOPIC_TEXT_BYTES_MAX:
            raise BadInput(f"the topic {name[:80]!r} has {len(raw)} bytes of settings")
        if (text := bytes(raw)) != b"null":
            topics[name] = topic = decode_body(TopicConfig, text)
            topic.attributes = {}  # no route has any
        yield
    return wrapper.data_version, topics


def _check_loose(body: Buffer) -> None:
    """Raise BadInput for what is no standard JSON and too long to be read slowly."""
    most = RegisterBrokerBody.loose_bytes_max
    if len(body) > most:
        raise BadInput(
            f"a registration of {len(body)} bytes that is not standard JSON is above {most}"
        )


def _check_count(count: int) -> None:
    if not 0 <= count <= limits.TOPICS_PER_GROUP_MAX:
        raise BadInput(f"{count} topics; 0 to {limits.TOPICS_PER_GROUP_MAX} are taken")


def _read_compressed(body: Buffer) -> Steps[tuple[DataVersion, dict[str, TopicConfig]]]:
    data = yield from _inflated(body)
    version, at = _piece(data, 0)
    data_version = decode_body(DataVersion, version)
    count, at = _number(data, at), at + _WORD_BYTES
    _check_count(count)
    topics = dict[str, TopicConfig]()
    for _ in range(count):
        text, at = _piece(data, at)
        topic = _topic_of_text(text)
        topics[topic.topic_name] = topic
        yield
    return data_version, topics


def _inflated(body: Buffer) -> Steps[bytes]:
    inflater, data = zlib.decompressobj(), bytearray()
    try:
        for begin in range(0, len(body), _INFLATED_PER_STEP):
            left = body[begin : begin + _INFLATED_PER_STEP]
            while len(left):
                data += inflater.decompress(left, _INFLATED_PER_STEP)
                left = inflater.unconsumed_tail
                if len(data) > limits.REGISTRATION_BYTES_MAX:
                    raise BadInput(
                        f"the inflated body is above {limits.REGISTRATION_BYTES_MAX} bytes"
                    )
                yield
            if inflater.eof:
                break
        data += inflater.flush()
    except zlib.error as error:
        raise BadInput(f"the compressed body is not a zlib stream: {error}") from error
    return bytes(data)


def _topic_of_text(text: bytes) -> TopicConfig:
    try:
        name, _, settings = text.decode().partition(" ")
    except UnicodeDecodeError as error:
        raise BadInput(f"no topic config: {text[:64]!r}") from error
    read_queues, write_queues, perm, filter_type = _settings_of(settings)
    return TopicConfig(
        topic_name=name,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        topic_filter_type=filter_type,
    )


@lru_cache(limits.TOPIC_SETTINGS_KEPT)
def _settings_of(text: str) -> tuple[int, int, int, str]:
    """Parsed once: most topics of a broker have the same."""
    try:
        read_queues, write_queues, perm, filter_type, *_ = text.split(" ")
        return int(read_queues), int(write_queues), int(perm), filter_type
    except ValueError as error:
        raise BadInput(f"no topic config: {text[:64]!r}") from error


def _number(data: bytes, at: int) -> int:
    if len(data) - at < _WORD_BYTES:
        raise BadInput(f"the inflated body ends within a number at byte {at}")
    return int(_WORD.unpack_from(data, at)[0])


def _piece(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes there, which have their length before them, and where they end."""
    size, begin = _number(data, at), at + _WORD_BYTES
    end = begin + size
    if not begin <= end <= len(data):
        raise BadInput(f"the inflated body ends within a piece of {size} bytes at {begin}")
    return data[begin:end], end
