"""The time at which the oldest message that the log still holds was stored.

Tools show how far back a broker's messages reach. The log begins with a segment's first entry,
which may be a no-op or a control entry, so the first messages are searched from there. The result
is kept until the log's head moves.
"""

from __future__ import annotations

from typing import Final

from dledger.errors import Rot, StorageError
from dledger.log.entry import HEADER_BYTES, OF_MESSAGES, decode_header, padded
from dledger.remoting.record import Record
from mqbroker import limits
from mqbroker.leader.log import Log

NO_MESSAGE: Final = -1
"""The time that RocketMQ reports for an empty log."""


class EarliestMessage:
    """Finds and remembers the store time of the oldest message."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._first_position = -1
        self._store_timestamp_ms = NO_MESSAGE

    def store_timestamp_ms(self, first_position: int, end_position: int) -> int:
        """The store time of the first message in the log; NO_MESSAGE if none is near its start."""
        if first_position != self._first_position or self._store_timestamp_ms == NO_MESSAGE:
            self._first_position = first_position
            self._store_timestamp_ms = self._find(first_position, end_position)
        return self._store_timestamp_ms

    def _find(self, position: int, end_position: int) -> int:
        try:
            for _ in range(limits.EARLIEST_ENTRIES_MAX):
                if position >= end_position:
                    break
                header = decode_header(self._log.view(position, HEADER_BYTES))
                if header.kind in OF_MESSAGES:
                    body = self._log.view(position + HEADER_BYTES, header.body_length)
                    return Record(body).store_timestamp_ms
                if not header.size:
                    break
                position += padded(header.size)
        except Rot:
            raise
        except StorageError:
            # Not committed yet, or just removed.
            return NO_MESSAGE
        return NO_MESSAGE
