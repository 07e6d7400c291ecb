"""Stored message records: what lies in the log, goes to consumers and comes from our producers.

``layout``  where each field lies
``encode``  builds one record
``view``    finds and reads them
``batch``   checks many at once and fills in where they went
``lone``    does so for one

The last two are for who stores records, and imported by their own names: they need numpy, which
takes longer to import than a command of `mqadmin` should take altogether.
"""

from __future__ import annotations

from dledger.remoting.record.encode import encode_record, place_record, with_queue
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
from dledger.remoting.record.view import Record, walk

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
    "encode_record",
    "place_record",
    "walk",
    "with_queue",
]
