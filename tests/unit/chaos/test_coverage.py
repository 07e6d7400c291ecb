"""Coverage of many runs: faults by workloads and properties, holes, and files that are refused."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import msgspec
import pytest

from dledger.errors import BadInput
from dledger.verdict.form import NUMBERS
from mqchaos.command_line import FAILED, run_app
from mqchaos.faults.kinds import KINDS
from mqchaos.limits import RUNS_SHOWN_MAX, SOAK_LINE_BYTES_MAX
from mqchaos.mqchaos import app
from mqchaos.report.soaked import RunLine
from mqchaos.run.covered import BEGIN, END, Coverage, compact, markdown, read_line, renewed
from mqchaos.run.covering import cover
from mqchaos.run.load.workload import WORKLOADS
from mqchaos.run.planned import read_plan

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "docs" / "notes" / "chaos" / "soak-two-hours.jsonl"
GOOD = RunLine(3, "keyed", 1800.0, 5, 5, {"kill": 2, "slow": 1}, 0.4, {"1": 1500, "10": 0}, [], "")
BAD = RunLine(4, "large", 1800.0, 5, 5, {"kill": 1}, None, {"1": 5}, ["property 1"], "a|b <lost>")


def added(*lines: RunLine) -> str:
    covered = Coverage()
    for line in lines:
        covered.add(line)
    return markdown(covered)


def status(*arguments: str) -> int | str | None:
    """Status of the command, as it ends."""
    try:
        return run_app(app, ["coverage", *arguments])
    except SystemExit as end:
        return end.code


def tables(text: str) -> list[dict[str, dict[str, str]]]:
    """Each table as cells by row and column, the tables below one heading as one."""
    found: list[dict[str, dict[str, str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        head, _, *rows = [
            [cell.strip(" `") for cell in line.strip().strip("|").split("|")]
            for line in block.splitlines()
        ]
        table = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
        if found and found[-1].keys() == table.keys():
            for name, cells in table.items():
                found[-1][name] |= cells
        else:
            found.append(table)
    return found


def test_every_fault_workload_and_property_has_its_place() -> None:
    """Each cell exists, also without any run: then it is a hole that shows."""
    times, by_fault, by_workload = tables(added())
    numbers = [str(number) for number in NUMBERS]

    assert set(times) == {*KINDS, "all"}
    assert set(by_fault) == {*KINDS, "all runs"}
    assert set(by_workload) == {*WORKLOADS, "all runs"}
    assert {times[fault][each] for fault, each in product(times, [*WORKLOADS, "all"])} == {"0"}
    for table in (by_fault, by_workload):
        assert {table[row][number] for row, number in product(table, numbers)} == {"0"}


def test_runs_are_added_up() -> None:
    """Faults are counted by their times, properties by runs that judged them, and how much."""
    times, by_fault, by_workload = tables(added(GOOD, GOOD, BAD))

    assert (times["kill"]["keyed"], times["kill"]["large"], times["kill"]["all"]) == ("4", "1", "5")
    assert (times["all"]["keyed"], times["all"]["all"]) == ("6", "7")
    assert by_fault["slow"]["1"] == "2 · 3.0 k"
    assert by_fault["kill"]["runs"] == "3"
    assert by_fault["slow"]["10"] == by_workload["large"]["2"] == "0"
    assert by_workload["keyed"]["1"] == "2 · 3.0 k"


def test_a_violation_stands_out() -> None:
    """A violation stands out in its cells and is told; text of a run is escaped."""
    text = added(GOOD, BAD)
    _, by_fault, by_workload = tables(text)

    assert by_fault["kill"]["1"] == by_fault["all runs"]["1"] == "2 · 1.5 k · **1** violated"
    assert (by_fault["slow"]["1"], by_fault["slow"]["wrong"]) == ("1 · 1.5 k", "0")
    assert by_workload["large"]["wrong"] == "**1**"
    assert "- seed 4, `large`: property 1: a\\|b \\<lost\\>" in text
    assert "Every property held" not in text
    assert "Every property held" in added(GOOD)


def test_runs_that_failed_are_kept_up_to_a_bound() -> None:
    """Failed runs are kept up to a bound, though a million have much to say."""
    covered = Coverage()
    for seed in range(RUNS_SHOWN_MAX + 50):
        covered.add(msgspec.structs.replace(BAD, seed=seed, summary="x" * 10_000))

    assert covered.all.wrong == RUNS_SHOWN_MAX + 50
    assert len(covered.wrong) == RUNS_SHOWN_MAX
    assert len(markdown(covered)) < 1_000 * RUNS_SHOWN_MAX


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0 k"),
        (999_949, "999.9 k"),
        (999_950, "1.0 M"),
        (10_827_412, "10.8 M"),
        (10**15, "1,000.0 T"),
    ],
)
def test_numbers_are_short(number: int, told: str) -> None:
    """Numbers have one digit behind the point, and are below a thousand of a unit."""
    assert compact(number) == told


def line_with(**fields: object) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(GOOD) | fields) + b"\n"


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"{}", "seed"),
        (b"\n", "truncated"),
        (line_with()[:40], "truncated"),
        (b"\xff\n", "malformed"),
        (b"[" * 100_000, ""),
        (b"[1]", "object"),
        (line_with(told=1), "told"),
        (line_with(workload="other"), "workload"),
        (line_with(faults={"kill": -1}), "faults"),
        (line_with(faults={"kill": "1"}), "faults"),
        (line_with(faults={"x" * 1000: 1}), "faults"),
        (line_with(checked={str(NUMBERS[-1] + 1): 1}), "checked"),
        (line_with(checked={"1": 10**30}), "checked"),
        (line_with(seconds=-1.0), "seconds"),
        (line_with().replace(b'"told":""', b'"told":"\xff"'), ""),
        (b"x" * (SOAK_LINE_BYTES_MAX + 1), "bytes"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_is_no_line_of_a_soak_is_refused(
    line: bytes, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong line of a soak is refused with the file, the line and the field."""
    path = tmp_path / "soak.jsonl"
    path.write_bytes(line_with() + line)

    ended = status(str(path))

    out, said = capsys.readouterr()
    assert (ended, out, said.count("\n")) == (FAILED, "", 1)
    assert f"{path}, line 2" in said
    assert field in said
    assert len(said) < 500


def test_a_file_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named twice it would say that twice as much was run; and none is nothing to add up."""
    (tmp_path / "again.jsonl").symlink_to(KEPT)

    assert status(str(KEPT), str(tmp_path / "again.jsonl")) == FAILED
    assert "again.jsonl is named twice" in capsys.readouterr().err
    assert status() == FAILED
    assert status(str(tmp_path / "none")) == FAILED
    assert "No such file" in capsys.readouterr().err


def test_a_page_is_renewed_between_its_marks(tmp_path: Path) -> None:
    """The text around the marks stays, and a page without marks is not touched."""
    page, other = tmp_path / "page.md", tmp_path / "other.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    other.write_text(f"{END}{BEGIN}")

    assert status(str(KEPT), "--page", str(page)) == 0
    assert status(str(KEPT), "--page", str(other)) == FAILED

    assert page.read_text() == f"before\n{BEGIN}\n{markdown(cover([KEPT]))}\n{END}after\n"
    assert other.read_text() == f"{END}{BEGIN}"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other.md", "page.md"]


def test_a_line_is_read_as_it_was_written() -> None:
    """A line is read as its writer wrote it, with an unknown name, too."""
    assert read_line(line_with(), "here") == GOOD
    with pytest.raises(BadInput, match="here has 'melted' in the field `faults`"):
        read_line(line_with(faults={"melted": 1}), "here")


def test_the_page_of_the_docs_is_that_of_the_kept_soak() -> None:
    """The command that stands there renews it."""
    page = (ROOT / "docs" / "notes" / "chaos-coverage.md").read_text()

    assert page == renewed(page, markdown(cover([KEPT])), "coverage.md")


def test_the_plans_of_what_was_found_can_be_replayed() -> None:
    """A kept plan is of its name's seed and workload, and the page names each."""
    page = (ROOT / "docs" / "notes" / "chaos-coverage.md").read_text()
    finds = [" ".join(each.split()) for each in page.split("\n- ")]
    named = {
        int(seed): find
        for find in finds
        for seed in re.findall(r"`mqchaos replay docs/notes/chaos/plans/(\d+)\.json --dir D`", find)
    }
    plans = [read_plan(path) for path in (ROOT / "docs" / "notes" / "chaos" / "plans").iterdir()]

    assert {plan.seed for plan in plans} == named.keys()
    for plan in plans:
        assert f"; `{plan.workload}` - Shown by: " in named[plan.seed]
        assert f"--seed {plan.seed} --duration 45.0 " in plan.drawn_by
        assert f" --workload {plan.workload} " in plan.drawn_by
