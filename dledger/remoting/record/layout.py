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

MAGIC = 0xDAA320A7
CRC_MASK = 0x7FFF_FFFF
HOST_IPV4_BYTES = 8
HOST_IPV6_BYTES = 20
HOST_IPV6_EXTRA_BYTES = HOST_IPV6_BYTES - HOST_IPV4_BYTES
#: A record with IPv4 hosts without its body, topic and properties.
RECORD_OVERHEAD_BYTES = 91

# Bits of the system flag (RocketMQ's MessageSysFlag).
COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_BITS = 0xC
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
#: Which kind of address a record holds. They follow from the addresses, not from who sent it.
HOST_BITS = BORN_HOST_IPV6 | STORE_HOST_IPV6
COMPRESSION_TYPE = 0x700

# Where the fields before the born host lie, and the least significant byte of the system flag.
MAGIC_AT = 4
BODY_CRC_AT = 8
QUEUE_ID_AT = 12
FLAG_AT = 16
QUEUE_OFFSET_AT = 20
PHYSICAL_OFFSET_AT = 28
SYS_FLAG_AT = 36
SYS_FLAG_LOW_BYTE_AT = 39
BORN_TIMESTAMP_AT = 40
BORN_HOST_AT = 48
#: Reconsume times, prepared offset and body length lie between the store host and the body.
BACK_BYTES = 16

SIZE_AND_MAGIC = struct.Struct(">II")
U16 = struct.Struct(">H")
U32 = struct.Struct(">I")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")

# Where body length and body lie in a record of two IPv4 hosts.
BODY_AT = BORN_HOST_AT + HOST_IPV4_BYTES + I64.size + HOST_IPV4_BYTES + BACK_BYTES
BODY_LENGTH_AT = BODY_AT - U32.size
