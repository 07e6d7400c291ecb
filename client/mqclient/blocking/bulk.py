"""Clients that send columns of messages, for programs without an event loop."""

from __future__ import annotations

from dledger.remoting.bodies.staged import Places
from mqclient.blocking.face import Face, blocking, taking_what
from mqclient.bulk import deciding, staging, writer


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


class StagedWriter(BulkWriter):
    """`mqclient.bulk.staging.StagedWriter`, blocking."""

    @taking_what(staging.StagedWriter)
    def __init__(self, client: staging.StagedWriter) -> None:
        Face.__init__(self, client)
        self._staged = client

    @property
    def places(self) -> Places:
        """The places of the staged entries; complete after `flush`."""
        return self._staged.places


class BatchDecider(Face[deciding.BatchDecider]):
    """`mqclient.bulk.deciding.BatchDecider`, blocking."""

    @taking_what(deciding.BatchDecider)
    def __init__(self, client: deciding.BatchDecider) -> None:
        super().__init__(client)

    begin = blocking(deciding.BatchDecider.begin)
    commit = blocking(deciding.BatchDecider.commit)
    close_name = blocking(deciding.BatchDecider.close_name)
