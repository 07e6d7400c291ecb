"""Sending columns, blocking."""

from __future__ import annotations

from mqclient.blocking.face import Face, blocking, taking_what
from mqclient.bulk import writer


class BulkWriter(Face[writer.BulkWriter]):
    """`mqclient.BulkWriter`, blocking."""

    _ends_in_order = True

    @taking_what(writer.BulkWriter)
    def __init__(self, client: writer.BulkWriter) -> None:
        super().__init__(client)

    @property
    def rows(self) -> int:
        """Rows that brokers have stored."""
        return self._client.rows

    @property
    def bytes(self) -> int:
        """Bytes of the records that brokers have stored."""
        return self._client.bytes

    write = blocking(writer.BulkWriter.write)
    flush = blocking(writer.BulkWriter.flush)
