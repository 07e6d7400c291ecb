"""A server's audit log in pages, as it is asked for over the network.

A page begins at a *cursor*: a file, by the check of its first line, and where in it. So a cursor
follows a file that is renamed when it is full. If the file is gone, as the oldest ones are, a page
begins with the oldest that is left, and says that lines are missing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import msgspec

from dledger.checksum import crc32
from dledger.errors import BadInput
from dledger.limits import AUDIT_LINES_PER_STEP, AUDIT_PAGE_BYTES
from dledger.program.audit_log import AuditLog, files_of
from dledger.remoting.command import Command
from dledger.remoting.headers import ListAuditedHeader, decode_header
from dledger.trust.audit import AuditLine, AuditPage

_CURSOR: Final = re.compile("([0-9a-f]{8})-([0-9]{1,12})")
_FIRST_BYTES: Final = 4096


def page_of(
    folder: Path, after: str, wanted: Callable[[AuditLine], bool]
) -> Generator[None, None, AuditPage]:
    """The page that begins at a cursor, "" for the oldest line, in steps. Raises BadInput for a
    text that is no cursor."""
    marked = [(mark, path) for path in files_of(folder) if (mark := _mark(path))]
    at, offset, missed = _place(after, [mark for mark, _ in marked])
    if at == len(marked):
        return AuditPage([], after, more=False, missed=False)
    mark, path = marked[at]
    data = _read(path, offset)
    lines: list[AuditLine] = []
    for number, line in enumerate(data.splitlines(), 1):
        found = _decoded(line)
        if found is not None and wanted(found):
            lines.append(found)
        if number % AUDIT_LINES_PER_STEP == 0:
            yield
    end = offset + len(data)
    if data and len(data) + _FIRST_BYTES * 4 >= AUDIT_PAGE_BYTES:
        return AuditPage(lines, f"{mark}-{end}", more=True, missed=missed)
    if at + 1 < len(marked):
        return AuditPage(lines, f"{marked[at + 1][0]}-0", more=True, missed=missed)
    return AuditPage(lines, f"{mark}-{end}", more=False, missed=missed)


def _place(after: str, marks: list[str]) -> tuple[int, int, bool]:
    """The file and the place in it, and whether the cursor's own file is gone."""
    if not after:
        return 0, 0, False
    matched = _CURSOR.fullmatch(after)
    if matched is None:
        raise BadInput(f"{after[:80]!r} is not a place in an audit log: begin without one")
    mark, offset = matched.groups()
    return (marks.index(mark), int(offset), False) if mark in marks else (0, 0, bool(marks))


def _mark(path: Path) -> str:
    """The mark of a file, by its first line; "" for one that is empty or gone."""
    try:
        with path.open("rb") as file:
            first = file.readline(_FIRST_BYTES)
    except OSError:
        return ""
    return f"{crc32(first):08x}" if first.endswith(b"\n") or len(first) == _FIRST_BYTES else ""


def _read(path: Path, offset: int) -> bytes:
    """Whole lines from there on."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(AUDIT_PAGE_BYTES)
    except OSError:
        return b""
    return data[: data.rfind(b"\n") + 1]


def answer_of(request: Command, log: AuditLog) -> Generator[None, None, Command]:
    """Steps that make the answer to LIST_AUDITED. Raises BadInput, also for a server that keeps no
    such log."""
    header, folder = decode_header(ListAuditedHeader, request), log.folder
    if folder is None:
        raise BadInput("this server keeps no audit log: set auditLogDir in its config")
    since_ms, user, refused = header.begin_ms or 0, header.user, bool(header.refused)

    def wanted(line: AuditLine) -> bool:
        return line.time_ms >= since_ms and line.is_wanted(user, refused=refused)

    page = yield from page_of(folder, header.after or "", wanted)
    return request.reply(body=msgspec.json.encode(page))


def _decoded(line: bytes) -> AuditLine | None:
    try:
        return msgspec.json.decode(line, type=AuditLine)
    except (msgspec.DecodeError, ValueError):
        return None
