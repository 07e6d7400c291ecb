"""Copies of this replica, at an operator's request: EXPORT_REPLICA.

A request names a place below `exportDir`, the directory that the operator allowed; never a path. A
copy may take longer than a request waits, so a request begins it, or asks how far it is: whoever
asks again with the same `export_id` hears of the same copy. One is made at a time, in a thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

import trio

from dledger.errors import DledgerError, StorageError
from dledger.ledger.exporting import Export
from dledger.log.replica import MANIFEST_FILE, Manifest
from dledger.net import Connection
from dledger.observe import get_logger
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.trust.rights import UPDATE, cluster, fields
from mqbroker import limits
from mqbroker.refusal import no_permission, refusing, system_error
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_all_to_admin
from mqbroker.state.saved.snapshot import open_snapshot
from mqbroker.upkeep.alarm import Signal

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_log = get_logger(__name__)


@dataclass(slots=True)
class _Asked:
    """The copy that was asked for last. Neither manifest nor reason: it is being made."""

    export_id: str
    export: Export
    manifest: Manifest | None = None
    reason: str | None = None

    @property
    def is_over(self) -> bool:
        return self.manifest is not None or self.reason is not None


class ExportHandler:
    """Copies this replica's files to a folder, one copy at a time."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._asked: _Asked | None = None
        self._due = Signal()

    @by_all_to_admin(RequestCode.EXPORT_REPLICA, rights=cluster(UPDATE).naming(fields("to")))
    def export(self, request: Command, _: Connection) -> Command:
        """Begin a copy, or say how far it is."""
        header = decode_header(headers.ExportReplicaHeader, request)
        asked = self._asked
        if asked is None or asked.export_id != header.export_id:
            if asked is not None and not asked.is_over:
                raise system_error(
                    f"a copy is being made already, in {asked.export.target}: wait for its end"
                )
            asked = self._begin(header)
        if asked.reason is not None:
            raise system_error(asked.reason)
        return request.reply(ext=encode_header(_answer(self._core.role.node_id, asked)))

    def _begin(self, header: headers.ExportReplicaHeader) -> _Asked:
        target, config = self.place(header.to), self._core.config
        with refusing((StorageError, OSError), system_error):
            state = open_snapshot(Path(config.store_path_root_dir), self._core.machine.saved_index)
            plan = replace(self._core.log.export_plan(), state=state)
        self._asked = _Asked(header.export_id, Export(plan, target))
        self._due.set()
        return self._asked

    def place(self, to: str) -> Path:
        """The directory that a request means. Refused unless it lies where copies may be."""
        config = self._core.config
        if not config.export_dir:
            raise no_permission(
                f"{config.broker_name}/{config.node_id} makes no copies: its config names no "
                "exportDir to put them in"
            )
        parts = to.split("/")
        if len(parts) > limits.EXPORT_DEPTH_MAX or not all(map(_NAME.fullmatch, parts)):
            raise no_permission(
                f"{to[:200]!r} is not a valid name for a copy: give a name below the broker's "
                "exportDir, such as nightly/2026-11-23, of letters, digits, '.', '_' and '-', at "
                f"most {limits.EXPORT_DEPTH_MAX} deep"
            )
        allowed = Path(config.export_dir).resolve()
        parent = allowed.joinpath(*parts).resolve()
        if not parent.is_relative_to(allowed):
            raise no_permission(f"{parent}, behind a link, is not below {allowed}")
        depths = range(2, limits.EXPORT_DEPTH_MAX + 2)
        there = (found for depth in depths for found in allowed.glob("*/" * depth + MANIFEST_FILE))
        if sum(1 for _ in islice(there, limits.EXPORTS_MAX)) == limits.EXPORTS_MAX:
            raise system_error(
                f"{allowed} has {limits.EXPORTS_MAX} copies already, and each keeps old segments "
                "on the disk: remove copies that you no longer need"
            )
        return parent / f"{config.broker_name}-{config.node_id}"

    async def turn(self) -> None:
        """Make the copy that was asked for. A stop of the broker breaks it off."""
        await self._due.wait()
        asked = self._asked
        if asked is None:
            return
        made_at_ms = self._core.clock_ms()
        _log.info("export began", target=str(asked.export.target))
        try:
            asked.manifest = await self._in_thread(asked.export, made_at_ms)
        except (DledgerError, OSError) as error:
            asked.reason = str(error)
            _log.warning("export failed", target=str(asked.export.target), reason=str(error))
        except BaseException:
            asked.reason = "the copy was broken off, since the broker ends"
            raise
        else:
            _log.info("export done", target=str(asked.export.target))

    async def _in_thread(self, export: Export, made_at_ms: int) -> Manifest:
        """Run an export in a thread. If cancelled, it ends soon and removes what was copied; the
        caller waits for that."""
        made: Manifest | DledgerError | OSError
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_break_off, export)
            try:
                made = await trio.to_thread.run_sync(export.run, made_at_ms)
            except (DledgerError, OSError) as error:
                made = error
            nursery.cancel_scope.cancel()
        if not isinstance(made, Manifest):
            raise made
        return made


async def _break_off(export: Export) -> None:
    try:
        await trio.sleep_forever()
    finally:
        export.cancelled = True


def _answer(node_id: str, asked: _Asked) -> headers.ExportReplicaResponseHeader:
    progress, manifest = asked.export.progress, asked.manifest
    plan = asked.export.plan
    return headers.ExportReplicaResponseHeader(
        node_id=node_id,
        directory=str(asked.export.target),
        is_done=manifest is not None,
        segments=progress.segments,
        segments_done=progress.done,
        linked=progress.linked,
        copied_bytes=progress.copied_bytes,
        last_index=plan.last_index,
        end_position=plan.end_position,
        first_position=plan.bases[0] if manifest is None else manifest.first_position,
    )
