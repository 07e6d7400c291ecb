"""Results on stdout: a table that never cuts a value, or JSON in one stable envelope.

The envelope is `{"schema": 1, "command": "...", "result": ...}`; the result has the fields of the
classes in `mqclient.admin.results`. The number goes up only if a field is renamed or removed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec

from dledger.observe import one_line
from mqclient import limits

if TYPE_CHECKING:
    from rich.table import Table as RichTable

JSON_SCHEMA = 1
#: Characters that JSON leaves as they are, and a terminal may obey: they stand within strings.
_UNPRINTED = re.compile(r"[^\x20-\x7e\n\w]")

Cell = str | int | float | None
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headers, and lines of text below them. Numbers are right-aligned."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default=())
    left_out: Sequence[str] = field(default=())
    """Rows that are not shown, and work that was not done, for people and for programs."""


def print_table(table: Table) -> None:
    """Print for people; styled only on a terminal."""
    # Loaded here because programs, which ask for JSON, need none of it.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415

    width = terminal_columns()
    console = Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)
    if table.rows:
        grid = RichTable(box=None, pad_edge=False, header_style="bold")
        for number, header in enumerate(table.headers):
            cells = [row[number] for row in table.rows]
            is_number = all(cell is None or isinstance(cell, int | float) for cell in cells)
            grid.add_column(header, justify="right" if is_number else "left", no_wrap=True)
        for row in table.rows:
            grid.add_row(*map(_shown, row))
        if _columns(table) > width:
            grid = _upright(table, RichTable(box=None, pad_edge=False, show_header=False))
        with console.capture() as capture:
            console.print(grid)
        # The last column is padded like the others; the blanks would be useless in a pipe.
        sys.stdout.writelines(line.rstrip() + "\n" for line in capture.get().splitlines())
    sys.stdout.writelines(one_line(note) + "\n" for note in (*table.notes, *table.left_out))


def _columns(table: Table) -> int:
    """How wide a table is that cuts nothing."""
    from rich.cells import cell_len  # noqa: PLC0415

    texts = [table.headers, *([_shown(cell) for cell in row] for row in table.rows)]
    widths = [max(map(cell_len, column)) for column in zip(*texts, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)


def _upright(table: Table, grid: RichTable) -> RichTable:
    """A table that is too wide: each row as lines of header and value, folded where they must."""
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for number, row in enumerate(table.rows):
        if number:
            grid.add_row("", "")
        for header, cell in zip(table.headers, row, strict=True):
            grid.add_row(header, _shown(cell))
    return grid


def terminal_columns() -> int:
    """How wide lines may be: as the terminal, or COLUMNS says; in a pipe nothing is folded."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
        return max(limits.TERMINAL_COLUMNS_MIN, shutil.get_terminal_size().columns)
    return limits.TABLE_COLUMNS_MAX


def print_json(command: str, result: object, left_out: Sequence[str] = ()) -> None:
    """Print a result as JSON, for programs."""
    envelope = {"schema": JSON_SCHEMA, "command": command, "result": result}
    if left_out:
        envelope["left_out"] = left_out
    text = msgspec.json.format(msgspec.json.encode(envelope), indent=2).decode()
    sys.stdout.write(_UNPRINTED.sub(_escaped, text) + "\n")


def moment(timestamp_ms: int) -> str:
    """A timestamp in the local time zone, to the millisecond; "-" for never."""
    if timestamp_ms <= 0:
        return "-"
    local = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return local.isoformat(sep=" ", timespec="milliseconds")


def first_of(found: Sequence[_T], count: int, option: str) -> tuple[Sequence[_T], list[str]]:
    """The first `count` of what was found, and what is to be said if there are more."""
    if len(found) <= count:
        return found, []
    return found[:count], [f"the first {count} of more: {option} shows more"]


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def joined(names: Iterable[str]) -> str:
    """Names as the text of one cell."""
    return ", ".join(names) or "-"


def leaderless(members: Iterable[tuple[str, str]]) -> list[str]:
    """A note for each broker group without a leader; `members` are (broker name, role)."""
    roles: dict[str, set[str]] = {}
    for broker_name, role in members:
        roles.setdefault(broker_name, set()).add(role)
    return [
        f"no leader: {name} takes no writes at the moment"
        for name, found in sorted(roles.items())
        if "leader" not in found
    ]


def _escaped(found: re.Match[str]) -> str:
    """A character as JSON escapes it, unless it is one that can be printed."""
    character = found[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _shown(cell: Cell) -> str:
    if cell is None or cell == "":
        return "-"
    if isinstance(cell, bool):
        return str(cell).lower()
    return f"{cell:.2f}" if isinstance(cell, float) else one_line(str(cell))
