"""Coverage of many runs: which fault met which workload, and what was judged meanwhile. Pure.

Every kind of fault, every workload and every property has its row or column, also where nothing was
run: so holes show. Sums are kept, and no runs but the first of those in which something was wrong,
so any number of runs takes the same memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from dledger.errors import BadInput
from dledger.verdict.form import NUMBERS
from mqchaos.faults.kinds import KINDS
from mqchaos.limits import PAGE_WIDTH_MAX, RUNS_SHOWN_MAX, SUMMARY_CHARACTERS_MAX
from mqchaos.report.soaked import RunLine
from mqchaos.run.load.workload import WORKLOADS

BEGIN: Final = "<!-- made by mqchaos coverage: begin -->\n"
END: Final = "<!-- made by mqchaos coverage: end -->\n"
_MARKDOWN: Final = re.compile(r"([\\`*_\[\]<>|#~&])")
_NAMES: Final = {str(number): number for number in NUMBERS}


def read_line(data: bytes, where: str) -> RunLine:
    """A line of soak.jsonl. Raises BadInput, which names the field, for any other line."""
    try:
        line = msgspec.json.decode(data, type=RunLine)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(f"{where} is not a line of a soak: {error}") from error
    for name, value, known in (
        ("workload", [line.workload], WORKLOADS),
        ("faults", line.faults, KINDS),
        ("checked", line.checked, _NAMES),
    ):
        unknown = next((each for each in value if each not in known), None)
        if unknown is not None:
            raise BadInput(f"{where} has {unknown[:80]!r} in the field `{name}`, which is unknown")
    return line


@dataclass(slots=True)
class Judged:
    """Judgements in runs that have something in common; of each property, by its number."""

    runs: int = 0
    wrong: int = 0
    judging: Counter[int] = field(default_factory=Counter)
    checked: Counter[int] = field(default_factory=Counter)
    violated: Counter[int] = field(default_factory=Counter)

    def add(self, line: RunLine) -> None:
        """Count a run, and what was judged in it."""
        self.runs += 1
        self.wrong += bool(line.signs)
        for name, count in line.checked.items():
            if count:
                self.judging[_NAMES[name]] += 1
                self.checked[_NAMES[name]] += count
        for number in NUMBERS if line.signs else ():
            self.violated[number] += f"property {number}" in line.signs

    def cells(self) -> list[str]:
        """The runs, those in which something was wrong, and each property's cell."""
        return [str(self.runs), _bad(self.wrong), *(self._cell(number) for number in NUMBERS)]

    def _cell(self, number: int) -> str:
        runs, violated = self.judging[number], self.violated[number]
        sums = f"{runs} · {compact(self.checked[number])}" if runs else "0"
        return f"{sums} · {_bad(violated)} violated" if violated else sums


@dataclass(slots=True)
class Coverage:
    """Sums over many runs, by fault and by workload."""

    seconds: float = 0.0
    acknowledged: int = 0
    times: Counter[tuple[str, str]] = field(default_factory=Counter)
    all: Judged = field(default_factory=Judged)
    by_fault: dict[str, Judged] = field(default_factory=lambda: {name: Judged() for name in KINDS})
    by_workload: dict[str, Judged] = field(
        default_factory=lambda: {name: Judged() for name in WORKLOADS}
    )
    wrong: list[RunLine] = field(default_factory=list)

    def add(self, line: RunLine) -> None:
        """Count a run in the sums of its workload and its faults."""
        self.seconds += line.seconds
        self.acknowledged += line.acknowledged
        self.all.add(line)
        self.by_workload[line.workload].add(line)
        for fault, times in line.faults.items():
            if times:
                self.times[fault, line.workload] += times
                self.by_fault[fault].add(line)
        if line.signs and len(self.wrong) < RUNS_SHOWN_MAX:
            words = line.summary[:SUMMARY_CHARACTERS_MAX]
            self.wrong.append(msgspec.structs.replace(line, faults={}, checked={}, summary=words))


def markdown(covered: Coverage) -> str:
    """The page: what was run, what was wrong, and three tables, each cut where it is too wide."""
    return "\n".join(
        [
            f"{covered.all.runs:,} runs in {covered.seconds / 3600:.2f} hours, "
            f"{covered.times.total():,} faults, {covered.acknowledged:,} messages acknowledged.",
            *_wrong(covered),
            *("", "### How often: fault x workload", ""),
            *_times(covered),
            *("", "### What was judged: fault x property", ""),
            *_properties("fault", covered.by_fault, covered.all),
            *("", "### What was judged: workload x property", ""),
            *_properties("workload", covered.by_workload, covered.all),
            "",
        ]
    )


def renewed(page: str, made: str, where: str) -> str:
    """The page with this between its marks. Raises BadInput if it does not have them once each."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise BadInput(
            f"{where} must have the lines `{BEGIN.strip()}` and `{END.strip()}`, each once and in "
            "this order: what is between them is replaced"
        )
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{made}\n{END}{rest.split(END)[1]}"


def compact(number: int) -> str:
    """At most four digits, and what they count by: 999, 1.2 k, 34.5 M."""
    if number < 1000:
        return str(number)
    value = float(number)
    for unit in "kMG":
        value /= 1000
        if round(value, 1) < 1000:
            return f"{value:.1f} {unit}"
    return f"{value / 1000:,.1f} T"


def _wrong(covered: Coverage) -> Iterator[str]:
    if not covered.all.wrong:
        yield "Every property held in every run, and each came to its end."
        return
    yield f"Something was wrong in {covered.all.wrong:,} of them; these are the first:"
    yield ""
    for line in covered.wrong:
        words = _plain(line.summary)
        yield f"- seed {line.seed}, `{line.workload}`: {_plain(', '.join(line.signs))}: {words}"


def _times(covered: Coverage) -> Iterator[str]:
    rows = []
    for fault in KINDS:
        times = [covered.times[fault, workload] for workload in WORKLOADS]
        rows.append([f"`{fault}`", *map(str, times), str(sum(times))])
    sums = [sum(covered.times[fault, workload] for fault in KINDS) for workload in WORKLOADS]
    rows.append(["all", *map(str, sums), str(sum(sums))])
    yield from _tables([["fault", *(f"`{name}`" for name in WORKLOADS), "all"], *rows])


def _properties(what: str, rows: dict[str, Judged], every: Judged) -> Iterator[str]:
    cells = [[f"`{name}`", *judged.cells()] for name, judged in rows.items()]
    yield from _tables(
        [[what, "runs", "wrong", *map(str, NUMBERS)], *cells, ["all runs", *every.cells()]]
    )


def _tables(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows with a head, as tables beside each other would be: each a few of the columns.

    All have the first column, so a table of thirty columns can be read and edited.
    """
    begin, columns = 1, len(rows[0])
    while begin < columns:
        end = begin + 1
        while end < columns and max(_width(row, begin, end + 1) for row in rows) <= PAGE_WIDTH_MAX:
            end += 1
        if begin > 1:
            yield ""
        cells = [[row[0], *row[begin:end]] for row in rows]
        yield from [_row(cells[0]), "|" + "---|" * len(cells[0]), *map(_row, cells[1:])]
        begin = end


def _width(row: Sequence[str], begin: int, end: int) -> int:
    return len(_row([row[0], *row[begin:end]]))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bad(count: int) -> str:
    return f"**{count}**" if count else "0"


def _plain(text: str) -> str:
    """Text from a run is text on the page, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(text[:SUMMARY_CHARACTERS_MAX].split()))
