"""Reading ranges of queues, blocking."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from dledger.remoting.json_dialect import MessageQueue
from mqclient.blocking.face import Face, blocking, taking_what
from mqclient.consuming.subscriptions import ALL, Sql
from mqclient.ranges import reader
from mqclient.ranges.pieces import Piece


class RangeReader(Face[reader.RangeReader]):
    """`mqclient.RangeReader`, blocking."""

    @taking_what(reader.RangeReader)
    def __init__(self, client: reader.RangeReader) -> None:
        super().__init__(client)

    topics = blocking(reader.RangeReader.topics)
    bounds = blocking(reader.RangeReader.bounds)
    offset_at = blocking(reader.RangeReader.offset_at)
    stored_ms = blocking(reader.RangeReader.stored_ms)
    read = blocking(reader.RangeReader.read)
    body = blocking(reader.RangeReader.body)
    commit = blocking(reader.RangeReader.commit)
    present = blocking(reader.RangeReader.present)

    def pieces(
        self,
        queue: MessageQueue,
        begin: int,
        end: int,
        *,
        life: int = 0,
        expression: str | Sql = ALL,
    ) -> Generator[Piece, None, None]:
        """All pieces of a range, in order. The next piece is read while the caller has one.

        Raises the errors of `read`.
        """
        read = partial(self._client.read, queue, life=life, expression=expression)
        coming = self.portal.start_task_soon(read, begin, end) if begin < end else None
        try:
            while coming is not None:
                piece = coming.result()
                begin = piece.next_offset
                coming = self.portal.start_task_soon(read, begin, end) if begin < end else None
                yield piece
        finally:
            if coming is not None:
                coming.cancel()
