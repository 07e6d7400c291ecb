"""The place of each field of a stored message record.

A record is RocketMQ's stored message format, version V1, so that a pull is answered with raw
bytes of the log. Everything up to the born host lies at a fixed place, the rest moves by 12 bytes
if a host is IPv6::

    0 size | 4 magic | 8 body CRC | 12 queue id | 16 flag | 20 queue offset | 28 physical offset
    36 system flag | 40 born timestamp | 48 born host | store timestamp | store host
    reconsume times | prepared offset | body length | body | topic length u8 | topic
    properties length u16 | properties

With two IPv4 hosts a record is 91 bytes longer than body, topic and properties together. All
integers are big-endian, timestamps are milliseconds, the CRC is CRC-32 of the body as stored
without its top bit.
"""

from __future__ import annotations

import struct
from itertools import accumulate

from dledger.buffers import Buffer

MAGIC = 0xDAA320A7
CRC_MASK = 0x7FFF_FFFF
HOST_IPV4_BYTES = 8
HOST_IPV6_BYTES = 20
HOST_IPV6_EXTRA_BYTES = HOST_IPV6_BYTES - HOST_IPV4_BYTES

# Bits of the system flag (RocketMQ's MessageSysFlag).
COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_BITS = 0xC
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
#: Which kind of address a record holds. They follow from the addresses, not from who sent it.
HOST_BITS = BORN_HOST_IPV6 | STORE_HOST_IPV6
COMPRESSION_TYPE = 0x700

#: The fields before the born host, each with its type as `struct` and numpy name it.
FRONT_FIELDS = {
    "size": "I",
    "magic": "I",
    "body_crc": "I",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "physical_offset": "q",
    "sys_flag": "i",
    "born_timestamp": "q",
}
#: The fields between the store host and the body.
BACK_FIELDS = {"reconsume_times": "i", "prepared_offset": "q", "body_length": "I"}
FRONT = struct.Struct(">" + "".join(FRONT_FIELDS.values()))
BACK = struct.Struct(">" + "".join(BACK_FIELDS.values()))
_SIZES = map(struct.calcsize, FRONT_FIELDS.values())
_PLACES = dict(zip(FRONT_FIELDS, accumulate(_SIZES, initial=0), strict=False))

MAGIC_AT = _PLACES["magic"]
BODY_CRC_AT = _PLACES["body_crc"]
QUEUE_ID_AT = _PLACES["queue_id"]
FLAG_AT = _PLACES["flag"]
QUEUE_OFFSET_AT = _PLACES["queue_offset"]
PHYSICAL_OFFSET_AT = _PLACES["physical_offset"]
SYS_FLAG_AT = _PLACES["sys_flag"]
#: The least significant byte of the system flag.
SYS_FLAG_LOW_BYTE_AT = SYS_FLAG_AT + 3
BORN_TIMESTAMP_AT = _PLACES["born_timestamp"]
BORN_HOST_AT = FRONT.size

SIZE_AND_MAGIC = struct.Struct(">II")
U16 = struct.Struct(">H")
U32 = struct.Struct(">I")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")

#: The queue offset and the physical offset behind it.
OFFSETS = struct.Struct(">" + FRONT_FIELDS["queue_offset"] + FRONT_FIELDS["physical_offset"])

# Where store timestamp, body length and body lie in a record of two IPv4 hosts.
STORE_TIMESTAMP_AT = BORN_HOST_AT + HOST_IPV4_BYTES
BODY_AT = STORE_TIMESTAMP_AT + I64.size + HOST_IPV4_BYTES + BACK.size
BODY_LENGTH_AT = BODY_AT - U32.size
#: A record with IPv4 hosts without its body, topic and properties.
RECORD_OVERHEAD_BYTES = BODY_AT + 1 + U16.size


def body_at(record: Buffer) -> int:
    """Where the body of a record begins, by the hosts that its system flag says."""
    flags = record[SYS_FLAG_LOW_BYTE_AT]
    hosts = (flags & BORN_HOST_IPV6 != 0) + (flags & STORE_HOST_IPV6 != 0)
    return BODY_AT + hosts * HOST_IPV6_EXTRA_BYTES
