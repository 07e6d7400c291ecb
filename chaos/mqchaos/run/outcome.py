"""The outcome of one run among many: whether it held, and if not, by which signs.

A run that ends by itself, since a group did not come back, say, is as much a find as a lost
message. Two runs show the same violation if they share a sign.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from dledger.errors import DledgerError, leaves
from dledger.verdict.form import headline
from mqchaos.report.verdict import Report
from mqchaos.run.perform import Order, assess, execute, measured

ENDED = "the run ended early"
EXCEPTION = "an exception reached the application"
FINDING = "something was not in time"
UNAUDITED = frozenset({ENDED, EXCEPTION})
"""Signs of a failure that show without an audit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a run, by the signs of what was wrong. `signs` are empty if everything holds.
    Without a `report` the run did not come to its end."""

    signs: frozenset[str]
    summary: str
    report: Report | None = None

    @property
    def holds(self) -> bool:
        """Whether there is nothing to be said against it."""
        return not self.signs


def judged(report: Report) -> Outcome:
    """Outcome of an audited run, by its report."""
    violated = [each for each in report.properties if not each.holds]
    signs = {f"property {each.number}" for each in violated}
    reasons = [each.title for each in violated] + report.findings
    if report.exceptions:
        signs.add(EXCEPTION)
    if not report.holds and not signs:
        signs.add(FINDING)
    return Outcome(frozenset(signs), "; ".join(reasons) or headline(report.properties), report)


async def outcome_of(order: Order, sought: frozenset[str] = frozenset()) -> Outcome:
    """Perform the run without output, and judge it. If all of the sought signs show without an
    audit, none is made."""
    console = Console(quiet=True)
    try:
        run = await execute(order, console)
        if sought and sought <= UNAUDITED:
            failures = (await measured(run.history)).failures
            return Outcome(frozenset({EXCEPTION} if failures else ()), "; ".join(failures[:1]))
        return judged(await assess(order, run, console))
    except* DledgerError as group:
        summary = "; ".join(dict.fromkeys(str(error) for error in leaves(group)))
    return Outcome(frozenset({ENDED}), summary)
