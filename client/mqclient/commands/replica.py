"""verifyLog checks a replica's files, without a server; exportReplica has brokers copy theirs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from dledger.errors import CorruptLog
from dledger.log.entry import Kind
from dledger.log.recovery.verify import Verification, verify_replica
from dledger.log.scanning.scan import Found
from dledger.program.whole import Whole
from mqclient import limits
from mqclient.commands.terminal.options import DEFAULT_OUTPUT, DEFAULTS, Common, Output
from mqclient.commands.terminal.output import Cell, Table, plural

_KINDS = {kind.value: kind.name.lower() for kind in Kind}


_REPAIRABLE = (
    "The leader has it: stop the node if it runs, remove log/checkpoint so that a start reads all "
    "of the log, and start it; it takes no part until it is repaired"
)
_TO_BE_REPLACED = (
    "That can't be repaired by a leader: move the folder away and start the node "
    "with an empty one, which copies everything"
)


@dataclass(frozen=True, slots=True)
class DumpedEntry:
    """An entry, or bytes that are no entry: of those only the place and `error` are known."""

    position: int
    size_bytes: int
    index: int | None
    term: int | None
    kind: str | None
    chain_crc: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class VerifiedLog:
    """The result that `verifyLog` prints."""

    verification: Verification
    entries: list[DumpedEntry]


def verify_log(
    directory: Path,
    *,
    dump: Annotated[Whole, Parameter(validator=Number(gte=0))] = 0,
    from_index: Annotated[Whole, Parameter(validator=Number(gte=1))] = 1,
    output: Output = DEFAULT_OUTPUT,
) -> None:
    """Check a replica's folder: segments, chain, watermarks, checkpoint, term and vote.

    Nothing is changed, and the node may run meanwhile. Exit status 1 if durable data is damaged;
    docs/explanation/dledger.md says what to do then.

    For example:

        mqadmin verifyLog store
        mqadmin verifyLog store --dump 20 --from-index 1

    Parameters
    ----------
    directory
        The replica's folder: storePathRootDir of its broker.
    dump
        How many entries to show as well.
    from_index
        The first entry to show.
    """
    entries: list[DumpedEntry] = []

    def keep(base: int, found: Found) -> None:
        if len(entries) < dump and (found.header is None or found.header.index >= from_index):
            entries.append(_dumped(base, found))

    result = verify_replica(directory, keep)
    output.show("verifyLog", VerifiedLog(result, entries), _table(result, entries))
    if result.damaged:
        raise CorruptLog(
            f"{directory}: {plural(result.damaged, 'place')} of what was durable can't be read. "
            + (_REPAIRABLE if result.is_repairable else _TO_BE_REPLACED)
        )


def export_replica(
    *,
    broker: Annotated[str, Parameter(name=["--broker", "-b", "--brokerName"])],
    to: str,
    node: str | None = None,
    within: Annotated[float, Parameter(validator=Number(gt=0))] = limits.EXPORT_S,
    common: Common = DEFAULTS,
) -> None:
    """Copy the replicas of a broker group while they serve: consistent, for mqaudit or a backup.

    Each broker writes its copy below the exportDir of its config, on its own machine. Segments that
    don't change any more are hard links where the file system has them: docs/reference/broker.md.

    For example:

        mqadmin exportReplica -b broker-a --to nightly/monday -n 127.0.0.1:9876

    Parameters
    ----------
    broker
        The group: its broker name, or a member's address.
    to
        A name below exportDir, such as nightly/2026-11-23; each replica gets a folder of its own in
        it. It must not be there yet.
    node
        Only this member, by its dLegerSelfId; by default all that answer.
    within
        Seconds until this command waits no longer; a copy goes on.
    """
    said: set[str] = set()

    def say(line: str) -> None:
        if line not in said:
            said.add(line)
            sys.stderr.write(line + "\n")

    copies = common.ask(
        lambda admin: admin.replicas.export(broker, to, node, within_s=within, on_progress=say)
    )
    headers = ("NODE", "DIRECTORY", "SEGMENTS", "LINKED", "COPIED BYTES", "LAST", "FROM", "TO")
    rows: list[tuple[Cell, ...]] = [
        (
            *(c.node_id, c.directory, c.segments, c.linked, c.copied_bytes),
            *(c.last_index, c.first_position, c.end_position),
        )
        for c in copies
    ]
    stores = " ".join(f"--store {copy.directory}" for copy in copies)
    common.show("exportReplica", copies, Table(headers, rows, [f"mqaudit {stores}"]))


def _dumped(base: int, found: Found) -> DumpedEntry:
    position, header = base + found.offset, found.header
    if header is None:
        return DumpedEntry(position, found.size, None, None, None, None, found.error)
    kind = _KINDS.get(header.kind, str(header.kind))
    return DumpedEntry(
        position, found.size, header.index, header.term, kind, header.chain_crc, found.error
    )


def _table(result: Verification, entries: list[DumpedEntry]) -> Table:
    summary = [
        f"{result.directory}: node {result.node_id} of {result.group}"
        + (", in use by a running process" if result.in_use else ""),
        f"term {result.term}, vote {result.vote or '-'}",
        f"{plural(result.segments, 'segment')} of {result.segment_bytes} bytes, entries "
        f"{result.first_index} to {result.last_index} (term {result.last_term}), "
        f"end position {result.end_position}, chain CRC {result.last_chain_crc:#010x}",
        f"durable up to {result.durable_index} at least, committed up to {result.commit_index} "
        "at least",
        f"{result.damaged} damaged, {result.torn} torn, {result.stale} stale"
        + ("" if result.damaged + result.torn + result.stale else ": all of it checks"),
    ]
    if entries:
        headers: tuple[str, ...] = (
            "INDEX",
            "TERM",
            "KIND",
            "POSITION",
            "SIZE",
            "CHAIN CRC",
            "ERROR",
        )
        rows: list[tuple[Cell, ...]] = [
            (e.index, e.term, e.kind, e.position, e.size_bytes, _hex(e.chain_crc), e.error)
            for e in entries
        ]
        summary += [f"{f.severity}: {f.file}, offset {f.offset}: {f.what}" for f in result.faults]
    else:
        headers = ("FAULT", "FILE", "OFFSET", "ENTRY", "WHAT")
        rows = [(f.severity, f.file, f.offset, f.index, f.what) for f in result.faults]
    return Table(headers, rows, summary)


def _hex(value: int | None) -> str | None:
    return None if value is None else f"{value:#010x}"
