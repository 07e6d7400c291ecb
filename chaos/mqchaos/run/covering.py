"""Soaks added up: their files are read a line at a time, and the tables printed or put in a page.

A line that is no run's ends it: sums that leave something out would say less was run than was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from dledger.errors import BadInput, ConfigError
from mqchaos.limits import COVERAGE_PAGE_BYTES_MAX, SOAK_LINE_BYTES_MAX
from mqchaos.report.soaked import RunLine
from mqchaos.run.covered import Coverage, markdown, read_line, renewed


def cover(soaks: Sequence[Path]) -> Coverage:
    """The sums over files soak.jsonl. Raises BadInput for one that is none."""
    if not soaks:
        raise ConfigError("name one soak.jsonl or more")
    covered, read = Coverage(), set[Path]()
    for path in soaks:
        if path.resolve() in read:
            raise ConfigError(f"{path} is named twice: its runs would count twice")
        read.add(path.resolve())
        for line in runs_of(path):
            covered.add(line)
    return covered


def runs_of(path: Path) -> Iterator[RunLine]:
    """The runs of a soak.jsonl, one after the other. Raises BadInput, which names the line."""
    with path.open("rb") as file:
        for number in count(1):
            data = file.readline(SOAK_LINE_BYTES_MAX + 1)
            if not data:
                return
            where = f"{path}, line {number}"
            if len(data) > SOAK_LINE_BYTES_MAX:
                raise BadInput(
                    f"{where} has more than {SOAK_LINE_BYTES_MAX} bytes: it is not a run's"
                )
            yield read_line(data, where)


def renew(page: Path, covered: Coverage) -> None:
    """Write the tables between a page's marks. Whatever goes wrong, the page stays whole."""
    with page.open("rb") as file:
        old = file.read(COVERAGE_PAGE_BYTES_MAX + 1)
    if len(old) > COVERAGE_PAGE_BYTES_MAX:
        raise BadInput(f"{page} has more than {COVERAGE_PAGE_BYTES_MAX} bytes: it is not a page")
    try:
        text = old.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{page} is not text in UTF-8: {error}") from error
    new = page.with_name(f"{page.name}.new")
    new.write_bytes(renewed(text, markdown(covered), str(page)).encode())
    new.replace(page)
