"""Stored message records: they lie in the log, go to consumers and come from our producers.

``layout``   where each field lies
``encode``   builds records
``view``     finds and reads them
``columns``  one field of many at once
``batch``    checks many at once and fills in where they went
``lone``     does so for one
``many``     builds many that differ in nothing but body and key
``table``    reads many, by column

The last five are for code that has many records, and are imported by their own names: they need
numpy, whose import takes longer than a whole command of `mqadmin` should.
"""

from __future__ import annotations

from dledger.remoting.record.encode import (
    encode_like,
    encode_record,
    encode_records,
    place_records,
    with_queue,
    with_reconsume_times,
)
from dledger.remoting.record.layout import (
    BORN_HOST_IPV6,
    COMPRESSED,
    COMPRESSION_TYPE,
    CRC_MASK,
    HOST_BITS,
    HOST_IPV4_BYTES,
    HOST_IPV6_BYTES,
    MAGIC,
    RECORD_OVERHEAD_BYTES,
    STORE_HOST_IPV6,
    TRANSACTION_BITS,
)
from dledger.remoting.record.view import Record, has_body, plain_body, queue_offset, walk

__all__ = [
    "BORN_HOST_IPV6",
    "COMPRESSED",
    "COMPRESSION_TYPE",
    "CRC_MASK",
    "HOST_BITS",
    "HOST_IPV4_BYTES",
    "HOST_IPV6_BYTES",
    "MAGIC",
    "RECORD_OVERHEAD_BYTES",
    "STORE_HOST_IPV6",
    "TRANSACTION_BITS",
    "Record",
    "encode_like",
    "encode_record",
    "encode_records",
    "has_body",
    "place_records",
    "plain_body",
    "queue_offset",
    "walk",
    "with_queue",
    "with_reconsume_times",
]
