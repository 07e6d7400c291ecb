"""Find the records of a buffer, and read one, field by field, where it lies.

A field is decoded only when it is asked for: a broker that serves raw log bytes needs a record's
size, a consumer its body and properties, an audit all of it.
"""

from __future__ import annotations

import struct

from dledger.buffers import Buffer
from dledger.checksum import crc32
from dledger.errors import BadInput, RecordError
from dledger.remoting.message import UNIQ_KEY, properties_decode
from dledger.remoting.record.layout import (
    BACK,
    BODY_AT,
    BODY_CRC_AT,
    BODY_LENGTH_AT,
    BORN_HOST_AT,
    BORN_HOST_IPV6,
    BORN_TIMESTAMP_AT,
    COMPRESSED,
    CRC_MASK,
    FLAG_AT,
    HOST_BITS,
    HOST_IPV4_BYTES,
    HOST_IPV6_BYTES,
    I32,
    I64,
    MAGIC,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    RECORD_OVERHEAD_BYTES,
    SIZE_AND_MAGIC,
    STORE_TIMESTAMP_AT,
    SYS_FLAG_AT,
    SYS_FLAG_LOW_BYTE_AT,
    U16,
    U32,
    body_at,
)

_PLAIN = struct.Struct(f">I{SYS_FLAG_AT - BODY_CRC_AT - 4}xI{BODY_LENGTH_AT - SYS_FLAG_AT - 4}xI")
"""A body's CRC, the system flag and the body's length, of a record with IPv4 hosts."""

_PLACE = struct.Struct(
    f">{QUEUE_ID_AT}xi{QUEUE_OFFSET_AT - QUEUE_ID_AT - 4}xqq"
    f"{STORE_TIMESTAMP_AT - PHYSICAL_OFFSET_AT - 8}xq{HOST_IPV4_BYTES}xi"
)
"""The fields that a broker fills in, and the number of tries, of a record with IPv4 hosts."""

_NO_LENGTH = bytes(U32.size)


def walk(buffer: Buffer) -> list[int]:
    """Return where each record of `buffer` begins. Sizes and magic are checked, nothing else.

    Raises RecordError, naming the record's number and place, if the records don't fill the buffer.
    """
    starts: list[int] = []
    append, unpack_from = starts.append, SIZE_AND_MAGIC.unpack_from
    position, end = 0, len(buffer)
    try:
        while position < end:
            size, magic = unpack_from(buffer, position)
            if magic != MAGIC or size < RECORD_OVERHEAD_BYTES:
                raise RecordError(
                    f"record {len(starts)} at byte {position} has size {size} and magic "
                    f"{magic:#010x}; expected at least {RECORD_OVERHEAD_BYTES} and {MAGIC:#010x}"
                )
            append(position)
            position += size
    except struct.error:
        position = end + 1
    if position != end:
        raise RecordError(f"record {max(len(starts) - 1, 0)} reaches beyond the {end} bytes given")
    return starts


def queue_offset(record: memoryview) -> int:
    """Which message of its queue a record is, from 0."""
    return int(I64.unpack_from(record, QUEUE_OFFSET_AT)[0])


def has_body(record: memoryview) -> bool:
    """Whether a record says that it has a body: `Record.has_body`, without a `Record` for most."""
    if len(record) >= BODY_AT:
        _, sys_flag, body_bytes = _PLAIN.unpack_from(record, BODY_CRC_AT)
        if not sys_flag & HOST_BITS:
            return bool(body_bytes)
    return Record(record).has_body


def plain_body(record: memoryview) -> bytes | None:
    """The body of a record as nearly all are, which has IPv4 hosts and was not compressed.

    None if this one is not so, is malformed, or its body does not match its CRC: `Record` says.
    """
    if len(record) < BODY_AT:
        return None
    crc, sys_flag, body_bytes = _PLAIN.unpack_from(record, BODY_CRC_AT)
    end = BODY_AT + body_bytes
    if sys_flag & (HOST_BITS | COMPRESSED) or end > len(record):
        return None
    body = bytes(record[BODY_AT:end])
    return body if crc32(body) & CRC_MASK == crc else None


class Record:
    """A lazy view of one stored record: a field is decoded when it is asked for.

    The code that cut the bytes out has checked size and magic (`walk`, `RecordBatch`);
    `check` compares the body with its CRC. A field whose place depends on a length raises
    RecordError if it does not lie within the bytes, so strangers' records can be read safely. Views
    are valid as long as the buffer underneath.
    """

    __slots__ = ("_body_start", "_end", "_properties", "_view")

    def __init__(self, data: Buffer) -> None:
        view = memoryview(data)
        self._view = view
        self._body_start = BODY_AT
        #: Where the body ends; None until it is asked for.
        self._end: int | None = None
        #: Where the properties lie; None until `fault` has found it out.
        self._properties: slice | None = None
        if len(view) > SYS_FLAG_LOW_BYTE_AT and view[SYS_FLAG_LOW_BYTE_AT] & HOST_BITS:
            self._body_start = body_at(view)

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return int(U32.unpack_from(self._view)[0])

    @property
    def place(self) -> tuple[int, int, int, int, int]:
        """The queue, the offset in it, the position in the log, the time of storing and the
        number of tries: in one go, since every replica asks for them all."""
        if self._body_start == BODY_AT:
            place: tuple[int, int, int, int, int] = _PLACE.unpack_from(self._view)
            return place
        offset, position = self.queue_offset, self.physical_offset
        return self.queue_id, offset, position, self.store_timestamp_ms, self.reconsume_times

    @property
    def body_crc(self) -> int:
        """CRC-32 of the body as stored, without the top bit."""
        return int(U32.unpack_from(self._view, BODY_CRC_AT)[0])

    @property
    def queue_id(self) -> int:
        """The queue within the topic."""
        return int(I32.unpack_from(self._view, QUEUE_ID_AT)[0])

    @property
    def flag(self) -> int:
        """The application's own flag, 32 bits that brokers only store."""
        return int(I32.unpack_from(self._view, FLAG_AT)[0])

    @property
    def queue_offset(self) -> int:
        """Which message of its queue this is, from 0."""
        return int(I64.unpack_from(self._view, QUEUE_OFFSET_AT)[0])

    @property
    def physical_offset(self) -> int:
        """The record's byte position in the replicated log."""
        return int(I64.unpack_from(self._view, PHYSICAL_OFFSET_AT)[0])

    @property
    def sys_flag(self) -> int:
        """Compression, transaction and address-family bits."""
        return int(I32.unpack_from(self._view, SYS_FLAG_AT)[0])

    @property
    def born_timestamp_ms(self) -> int:
        """When the producer made it, by the producer's clock."""
        return int(I64.unpack_from(self._view, BORN_TIMESTAMP_AT)[0])

    @property
    def born_host(self) -> bytes:
        """The producer's address and port, 8 or 20 bytes."""
        return bytes(self._view[BORN_HOST_AT : self._born_host_end])

    @property
    def store_timestamp_ms(self) -> int:
        """The time at which the broker stored the message, by the broker's clock."""
        return self._number(I64, self._born_host_end)

    @property
    def store_host(self) -> bytes:
        """The broker's address and port, 8 or 20 bytes."""
        return bytes(self._view[self._born_host_end + I64.size : self._body_start - BACK.size])

    @property
    def reconsume_times(self) -> int:
        """How often a consumer sent it back."""
        return self._number(I32, self._body_start - BACK.size)

    @property
    def prepared_offset(self) -> int:
        """The half message's physical offset, of a committed transactional message."""
        return self._number(I64, self._body_start - 12)

    @property
    def body(self) -> memoryview:
        """The body as stored, maybe compressed: a view."""
        return self._view[self._body_start : self._body_end]

    @property
    def has_body(self) -> bool:
        """Whether it says that it has a body."""
        return self._view[self._body_start - U32.size : self._body_start] != _NO_LENGTH

    @property
    def topic(self) -> str:
        """Name of the record's topic. Raises RecordError if it is not UTF-8."""
        start = self._body_end + 1
        try:
            return str(self._view[start : start + self._view[start - 1]], "utf-8")
        except UnicodeDecodeError as error:
            raise RecordError(f"a record's topic is not UTF-8: {error}") from error
        except IndexError as error:
            raise self._broken() from error

    @property
    def properties(self) -> memoryview:
        """The property string, still encoded (`message.properties_decode`): a view."""
        if self._properties is not None:
            return self._view[self._properties]
        topic_start = self._body_end + 1
        try:
            start = topic_start + self._view[topic_start - 1] + 2
            return self._view[start : start + int(U16.unpack_from(self._view, start - 2)[0])]
        except (IndexError, struct.error) as error:
            raise self._broken() from error

    @property
    def fault(self) -> str | None:
        """The fault of the record's own lengths; None if it fills the bytes given exactly.

        It can be called on any bytes. Only a record without a fault can be read field by field.
        """
        view = self._view
        size, body_start = len(view), self._body_start
        if size < RECORD_OVERHEAD_BYTES or size < body_start + 3:
            return f"{size} bytes are too few for a record"
        size_said, magic = SIZE_AND_MAGIC.unpack_from(view)
        if magic != MAGIC or size_said != size:
            return f"size {size_said} and magic {magic:#010x}, of {size} bytes"
        body_end = self._end = body_start + int(U32.unpack_from(view, body_start - 4)[0])
        properties_at = body_end + 1 + (view[body_end] if body_end < size else size) + 2
        if properties_at > size or (
            properties_at + U16.unpack_from(view, properties_at - 2)[0] != size
        ):
            return f"body, topic and properties do not fill the {size} bytes"
        self._properties = slice(properties_at, size)
        return None

    def check(self) -> bool:
        """Whether the body has the CRC that the record says."""
        return crc32(self.body) & CRC_MASK == self.body_crc

    @property
    def _born_host_end(self) -> int:
        if self._view[SYS_FLAG_LOW_BYTE_AT] & BORN_HOST_IPV6:
            return BORN_HOST_AT + HOST_IPV6_BYTES
        return BORN_HOST_AT + HOST_IPV4_BYTES

    @property
    def _body_end(self) -> int:
        if self._end is None:
            self._end = self._body_start + self._number(U32, self._body_start - 4)
        return self._end

    def _number(self, kind: struct.Struct, at: int) -> int:
        try:
            return int(kind.unpack_from(self._view, at)[0])
        except struct.error as error:
            raise self._broken() from error

    def _broken(self) -> RecordError:
        return RecordError(f"a record is malformed: {self.fault or 'a length is beyond its end'}")


def first_unique_key(records: Buffer) -> str | None:
    """The UNIQ_KEY property of the first record. Raises RecordError for malformed properties."""
    try:
        return properties_decode(Record(records).properties).get(UNIQ_KEY)
    except BadInput as error:
        raise RecordError(f"record 0: {error}") from error
