"""Stored message records: what lies in the log, goes to consumers and comes from our producers.

`layout` says where each field lies, `encode` builds one record, `view` reads one, `batch` checks
many at once and fills in where they went, `lone` does so for one.
"""

from __future__ import annotations

from dledger.checksum import crc32
from dledger.remoting.record.batch import RecordBatch, walk
from dledger.remoting.record.encode import encode_record
from dledger.remoting.record.layout import (
    BORN_HOST_IPV6,
    COMPRESSED,
    COMPRESSION_TYPE,
    CRC_MASK,
    HOST_IPV4_BYTES,
    HOST_IPV6_BYTES,
    MAGIC,
    RECORD_OVERHEAD_BYTES,
    STORE_HOST_IPV6,
    TRANSACTION_BITS,
)
from dledger.remoting.record.lone import LoneRecord, parse_records
from dledger.remoting.record.view import Record

__all__ = [
    "BORN_HOST_IPV6",
    "COMPRESSED",
    "COMPRESSION_TYPE",
    "CRC_MASK",
    "HOST_IPV4_BYTES",
    "HOST_IPV6_BYTES",
    "MAGIC",
    "RECORD_OVERHEAD_BYTES",
    "STORE_HOST_IPV6",
    "TRANSACTION_BITS",
    "LoneRecord",
    "Record",
    "RecordBatch",
    "crc32",
    "encode_record",
    "parse_records",
    "walk",
]
