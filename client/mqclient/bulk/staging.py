"""Stages rows for a batch: they are stored, and no reader sees them before the batch is decided.

A batch of records becomes one staged entry (docs/explanation/spark-sink.md). Several may be on
their way to a group at a time: the decision says in which order they become messages. A repeat,
whose first answer was lost, is another entry: only the one that was answered is named.
"""

from __future__ import annotations

from dledger.remoting.bodies.staged import Places, Staged
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    StageHeader,
    StageResponseHeader,
    decode_header,
    encode_header,
)
from dledger.tls.options import AskedTls
from mqclient import limits
from mqclient.bulk.models import RecordsBatch
from mqclient.bulk.writer import BulkWriter


class StagedWriter(BulkWriter):
    """A bulk writer whose rows wait for a decision. What it has stored is in `places`."""

    _side_by_side = limits.STAGED_SIDE_BY_SIDE
    _body_bytes_max = limits.STAGED_BODY_BYTES_MAX

    def __init__(
        self,
        namesrv_addr: str,
        staged: Staged,
        *,
        timeout_s: float = limits.BULK_TIMEOUT_S,
        pending_bytes_max: int = limits.BULK_PENDING_BYTES_MAX,
        user: str | None = None,
        secret: str | None = None,
        tls: AskedTls = None,
    ) -> None:
        super().__init__(
            namesrv_addr,
            timeout_s=timeout_s,
            pending_bytes_max=pending_bytes_max,
            user=user,
            secret=secret,
            tls=tls,
        )
        self._staged = staged
        self._found: dict[int, tuple[str, int, int]] = {}

    @property
    def places(self) -> Places:
        """Where the staged entries lie, by broker group, in the order of the rows. Whole after
        `flush`."""
        places: dict[str, list[tuple[int, int]]] = {}
        for _, (broker_name, offset, position) in sorted(self._found.items()):
            places.setdefault(broker_name, []).append((offset, position))
        return places

    def _request(self, batch: RecordsBatch) -> Command:
        name, epoch, number, home = self._staged
        header = StageHeader(batch.topic, name, epoch, number, home, [*batch.runs])
        return Command(RequestCode.STAGE, encode_header(header), batch.records)

    def _stored(self, number: int, batch: RecordsBatch, answer: Command) -> None:
        place = decode_header(StageResponseHeader, answer)
        self._found[number] = (batch.broker_name, place.offset, place.commit_log_offset)
