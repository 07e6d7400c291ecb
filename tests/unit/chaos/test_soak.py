"""A soak: seeds in order, workloads in turn, one page, and its violations."""

from __future__ import annotations

import re
from itertools import islice

import msgspec

from dledger.verdict.form import Property
from mqchaos.report.soaked import RunLine, render
from mqchaos.report.verdict import Counts, GapFound, Report
from mqchaos.run.outcome import ENDED, EXCEPTION, FINDING, Outcome, judged
from mqchaos.run.scenarios import random_plan
from mqchaos.run.soak import line_of, plans

COUNTS = Counts(5, 5, {"n0": 5}, 5, 0, 0, 0, 0, True)
GAPS = [GapFound("kill", "n0", 1.0, 0.4), GapFound("slow", "n1", 3.0, 0.1)]
GOOD = Report(
    holds=True,
    scenario="random",
    seed=3,
    replay="",
    seconds=9.0,
    counts=COUNTS,
    properties=[Property(1, "nothing is lost", True, 5)],
    gaps=GAPS,
    gap_median_s=0.25,
    gap_worst_s=0.4,
    exceptions=0,
    findings=[],
)


def test_seeds_go_on_and_workloads_take_turns() -> None:
    """Plans are made one by one, with the next seed and the next workload."""
    found = list(islice(plans(7, 30.0, ["keyed", "large"]), 3))

    assert [(plan.seed, plan.workload) for plan in found] == [
        (7, "keyed"),
        (8, "large"),
        (9, "keyed"),
    ]
    assert found[0] == random_plan(7, 30.0, "keyed")


def test_what_is_wrong_has_a_sign() -> None:
    """A finding has a sign: a property's number, an exception, or another line of the report."""
    lost = Property(1, "nothing is lost", False, 5)
    change = msgspec.structs.replace

    assert judged(GOOD).holds
    assert judged(change(GOOD, holds=False, properties=[lost])).signs == {"property 1"}
    assert judged(change(GOOD, holds=False, exceptions=2)).signs == {EXCEPTION}
    assert judged(change(GOOD, holds=False, findings=["late"])).signs == {FINDING}
    assert "late" in judged(change(GOOD, holds=False, findings=["late"])).summary


def test_a_line_says_what_was_done() -> None:
    """A line has a run's faults and checks, also if the run ended early."""
    planned = random_plan(3, 30.0)

    line = line_of(planned, judged(GOOD), 12.34)
    ended = line_of(planned, Outcome(frozenset({ENDED}), "no leader"), 5.0)

    assert (line.faults, line.checked, line.seconds) == ({"kill": 1, "slow": 1}, {"1": 5}, 12.3)
    assert line.signs == []
    assert (ended.acknowledged, ended.signs, ended.summary) == (0, [ENDED], "no leader")


def test_the_page_has_the_verdict_first_and_all_sums() -> None:
    """The page has the verdict first, then all sums, and shows a run's text as text."""
    good = line_of(random_plan(3, 30.0), judged(GOOD), 1800.0)
    bad = RunLine(4, "large", 1800.0, 5, 5, {"kill": 2}, None, {"1": 5}, ["property 1"], "<lost>")

    page = render([good, good, bad], {"1": "nothing is lost"})

    assert headings(page) == ["Seed 4: &lt;lost&gt;", "Faults", "What was judged", "Runs"]
    assert "3 runs in 1.50 hours, seeds 3 to 4." in page
    for told in ("<b>15</b>", "<b>6</b><span>faults of 2 kinds</span>", "<b>1</b><span>runs in"):
        assert told in page
    assert cells(page, "kill") == ["kill", "4", "2", "2"]
    assert cells(page, "slow") == ["slow", "2", "2", "·"]
    assert cells(page, "1") == ["1", "nothing is lost", "3", "15", "1"]
    assert cells(page, "4") == ["4", "large", "1800", "5", "2", "", "&lt;lost&gt;"]
    assert headings(render([good], {}))[0] == "Every property held in every run"
    assert "0 runs in 0.00 hours." in render([], {})


def headings(page: str) -> list[str]:
    return re.findall(r"<h[12]>(.*?)</h", page)


def cells(page: str, first: str) -> list[str]:
    """Cells of the row whose first cell is this."""
    rows = [re.findall(r"<td.*?>(.*?)</td>", row) for row in page.split("<tr>")]
    (found,) = [row for row in rows if row[:1] == [first]]
    return [re.sub("<.*?>", "", cell) for cell in found]
