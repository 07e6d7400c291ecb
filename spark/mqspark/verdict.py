"""Runs every judge on the evidence, and collects the verdict.

A verdict has for each property the violations, how many things were checked, and whether it holds;
and over all the counts that people ask for first. A property without anything to check holds
vacuously; `checked` being 0 says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from dledger.errors import ConfigError
from dledger.verdict import form
from mqspark.judge import (
    alone,
    authenticity,
    copies,
    durability,
    identity,
    leadership,
    order,
    replication,
    waiting,
)
from mqspark.judge.acts import obeyed
from mqspark.judge.answers import freshness
from mqspark.judge.batches import whole
from mqspark.judge.evidence import Evidence
from mqspark.judge.groups import commits, outputs, popped, priorities
from mqspark.judge.violations import Alone, Property
from mqspark.limits import VIOLATIONS_SHOWN_MAX
from mqspark.screening.tasks import COMMIT

Scalar = str | int | bool | None
Violation = dict[str, Scalar | list[int]]
Counts = dict[str, int | bool | dict[str, int]]


PROPERTIES: Final = (
    durability.PROPERTY,
    authenticity.PROPERTY,
    identity.PROPERTY,
    order.PROPERTY,
    replication.CHAIN,
    leadership.ELECTION,
    leadership.COMPLETENESS,
    commits.PROPERTY,
    copies.PROPERTY,
    waiting.TRANSACTIONS,
    waiting.DELAYS,
    freshness.PROPERTY,
    replication.EQUALITY,
    outputs.PROPERTY,
    popped.PROPERTY,
    priorities.PROPERTY,
    obeyed.PROPERTY,
    alone.DERIVED,
    whole.PROPERTY,
)
assert [item.number for item in PROPERTIES] == list(form.NUMBERS)
NO_END: Final = "the history has no end: its run goes on, or was cut off"
NO_META: Final = "the history does not say what was run (meta)"


@dataclass(frozen=True)
class Judgement:
    """The findings of one property's judge. `count` is complete, `violations` are the first of
    them. `doubted` counts further ones, which lines that the history lacks, or that can't be read,
    may explain."""

    number: int
    title: str
    checked: int
    count: int
    violations: list[Violation]
    exhibits: Sequence[form.Exhibit] = ()
    unjudged: str | None = None
    kinds: dict[str, int] = field(default_factory=dict)
    doubted: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing was found against the property."""
        return self.count == 0

    def written(self) -> form.Property:
        """The judgement as `verdict.json` has it. The first violations have exhibits."""
        shown = [msgspec.convert(row, form.Violation) for row in self.violations]
        for number, exhibit in enumerate(self.exhibits):
            shown[number] = msgspec.structs.replace(shown[number], exhibit=exhibit)
        return form.Property(
            self.number,
            self.title,
            self.holds,
            self.checked,
            shown,
            self.count,
            self.unjudged,
            self.kinds,
        )


@dataclass(frozen=True)
class Verdict:
    """All judgements, the counts, and notes on what could not be judged."""

    judgements: list[Judgement]
    counts: Counts
    notes: list[str]

    @property
    def holds(self) -> bool:
        """Whether the run kept every property, by all judgements."""
        return all(judgement.holds for judgement in self.judgements)

    @property
    def is_undecided(self) -> bool:
        """Whether nothing is proven, and what was found may come of a damaged history."""
        return self.holds and any(judgement.doubted for judgement in self.judgements)

    def written(self) -> form.Verdict:
        """The verdict as `verdict.json` has it."""
        word = "undecided" if self.is_undecided else "ok"
        return form.Verdict(
            word if self.holds else "violated",
            [judgement.written() for judgement in self.judgements],
            self.counts,
            self.notes,
        )


def judge(evidence: Evidence, progress: Callable[[str], None]) -> Verdict:
    """Judge every property on the evidence. Raises ConfigError if it is not enough for any
    verdict."""
    progress("reading the history and the replicas' messages")
    totals = _totals(evidence)
    if totals["elsewhere"]:
        raise ConfigError(
            f"{totals['elsewhere']} messages were acknowledged or delivered by brokers whose "
            f"stores were not given; given are the stores of {', '.join(evidence.members.brokers)}"
        )
    progress("comparing the replicas' entries")
    judgements = []
    for item in PROPERTIES:
        progress(f"judging property {item.number}: {item.title}")
        rows, doubted = _believed(evidence, item, item.judge(evidence))
        judgement = _judgement(evidence, item, item.checked(evidence), rows)
        if doubted:
            reason = None if judgement.count else _doubts(evidence, doubted)
            judgement = replace(judgement, doubted=doubted, unjudged=reason)
        if item.needs_meta and not evidence.meta.is_described:
            judgement = replace(judgement, unjudged=NO_META)
        judgements.append(judgement)
    return Verdict(judgements, _counts(evidence, totals, judgements), _notes(evidence))


def judge_alone(evidence: Evidence, progress: Callable[[str], None]) -> Verdict:
    """Judge what replicas can show without a history."""
    progress("reading the replicas' entries")
    several = any(len(evidence.members.of(name)) > 1 for name in evidence.members.brokers)
    columns = ["broker", "replica"]
    stored = evidence.entries.where("error IS NULL").groupBy(*columns).count().collect()
    judgements = []
    notes = []
    for item in PROPERTIES:
        how = item.alone
        if isinstance(how, Alone) and how.compares and not several:
            how = alone.ONE_REPLICA
        if isinstance(how, str):
            judgements.append(Judgement(item.number, item.title, 0, 0, [], unjudged=how))
            continue
        progress(f"judging property {item.number}: {item.title}")
        judgements.append(_judgement(evidence, item, how.checked(evidence), how.judge(evidence)))
        notes += [f"property {item.number}: {how.part}"] * bool(how.part)
    counts: Counts = {
        "replicas": len(evidence.members.replicas),
        "entries": {f"{row.broker}/{row.replica}": row["count"] for row in stored},
        "replicas_equal": _of(judgements, replication.EQUALITY.number).holds,
    }
    for name in evidence.members.brokers:
        begin, end = evidence.begins[name], evidence.settled_end[name]
        notes.append(f"{name}: compared from position {begin} to {end}")
    return Verdict(judgements, counts, notes)


def _of(judgements: Sequence[Judgement], number: int) -> Judgement:
    return next(judgement for judgement in judgements if judgement.number == number)


def _totals(evidence: Evidence) -> dict[str, int]:
    """Counts of messages; those on each replica by its name."""
    found = evidence.screened.totals
    stored = {
        f"{replica.broker}/{replica.node}": found["stored"][number][bit]
        for number, broker in enumerate(evidence.members.brokers)
        for bit, replica in enumerate(evidence.members.of(broker))
    }
    return {name: value for name, value in found.items() if isinstance(value, int)} | stored


def _believed(evidence: Evidence, item: Property, rows: DataFrame) -> tuple[DataFrame, int]:
    """The violations that no line explains which the history lacks, or which can't be read; and how
    many may be explained so."""
    explained = item.explained
    if not explained or not _lacking(evidence) or evidence.is_nothing(rows):
        return rows, 0
    rows = evidence.kept(rows)
    return rows.where(~F.col("what").isin(*explained)), rows.where(
        F.col("what").isin(*explained)
    ).count()


def _doubts(evidence: Evidence, count: int) -> str:
    return f"{_lacking(evidence)}; {count} violations that were found may come of that"


def _lacking(evidence: Evidence) -> str:
    """Why lines are missing, if any are."""
    return _lines_lost(evidence) or ("" if evidence.screened.is_ended else NO_END)


def _lines_lost(evidence: Evidence) -> str:
    found = evidence.screened.unreadable
    return ", ".join(
        f"{count} line{'s' * (count > 1)} of {file} can't be read" for file, count in found.items()
    )


def _judgement(evidence: Evidence, item: Property, checked: int, rows: DataFrame) -> Judgement:
    """How many violations there are, and the worst and first; replicas are put together."""
    if evidence.is_nothing(rows):
        return Judgement(item.number, item.title, checked, 0, [])
    names = [name for name in rows.columns if name != "replica"]
    merged = (
        rows.groupBy(*names)
        .agg(F.array_join(F.sort_array(F.collect_set("replica")), ", ").alias("replica"))
        .orderBy("severity", F.get("positions", F.lit(0)).asc_nulls_last(), "message_id")
    )
    found = merged.limit(VIOLATIONS_SHOWN_MAX + 1).collect()
    kinds = dict(Counter(str(row.what) for row in found))
    if len(found) > VIOLATIONS_SHOWN_MAX:
        kinds = {row.what: row["count"] for row in merged.groupBy("what").count().collect()}
    shown = [row.asDict() for row in found[:VIOLATIONS_SHOWN_MAX]]
    for row in shown:
        del row["severity"]
        row["replica"] = row["replica"] or None
    count = sum(kinds.values())
    return Judgement(item.number, item.title, checked, count, shown, kinds=kinds)


def _counts(evidence: Evidence, totals: dict[str, int], judgements: list[Judgement]) -> Counts:
    found = {judgement.number: judgement for judgement in judgements}
    return {
        "sent": totals["sent"],
        "acknowledged": totals["acknowledged"],
        "stored": {
            f"{replica.broker}/{replica.node}": totals[f"{replica.broker}/{replica.node}"]
            for replica in evidence.members.replicas
        },
        "consumed": totals["consumed"],
        "lost": _count_of(found[durability.PROPERTY.number], {"lost", "damaged", "altered"}),
        "phantom": _count_of(found[authenticity.PROPERTY.number], {"phantom", "refused"}),
        "duplicated": found[copies.PROPERTY.number].count,
        "reordered": _count_of(
            found[order.PROPERTY.number], {"overtaken", "misplaced", "late", "skipped"}
        ),
        "replicas_equal": found[replication.EQUALITY.number].holds,
    }


def _count_of(judgement: Judgement, kinds: Iterable[str]) -> int:
    return sum(judgement.kinds.get(kind, 0) for kind in kinds)


def _of_lines(evidence: Evidence) -> list[str]:
    """Faults of the history itself."""
    notes = [
        f"the clock of {writer} fell by {fall_ns / 1e9:.3f} s: of what it noted nothing counts as "
        "before or after what others noted"
        for writer, fall_ns in sorted(evidence.screened.unsure.items())
    ]
    if evidence.screened.unreadable:
        notes.append(f"{_lines_lost(evidence)}; what they would say is missed")
    if not evidence.screened.is_ended:
        notes.append(f"{NO_END}; what came later is missed")
    if not evidence.meta.is_described:
        notes.append(
            "the history does not say what was run (meta): topics are those that were sent to, "
            "sends are taken to be idempotent, and outputs and priorities are not judged"
        )
    return notes


def _trimmed(evidence: Evidence) -> list[str]:
    """From where each log is judged, if not from its beginning."""
    notes = [
        f"{replica.broker}/{replica.node}: its log begins at position {replica.begin}, since old "
        "segments were removed; what stood before is not judged"
        for replica in evidence.members.replicas
        if replica.begin
    ]
    removed = evidence.screened.totals["removed"]
    if removed:
        notes.append(f"{removed} acknowledged messages are before the beginning of all logs")
    if notes:
        numbers = ", ".join(str(each.PROPERTY.number) for each in (commits, popped, obeyed))
        notes.append(
            f"properties {numbers}: whether all that was answered is in a log is not judged "
            "where none is whole"
        )
    return notes


def _notes(evidence: Evidence) -> list[str]:
    """Notes for a reader of the verdict about facts that are not violations."""
    notes = []
    given = {(replica.broker, replica.node) for replica in evidence.members.replicas}
    for broker, nodes in evidence.meta.brokers.items():
        missing = [node for node in nodes if (broker, node) not in given]
        if missing:
            notes.append(f"{broker}: no store of {', '.join(missing)} is given; it is not judged")
    notes += _trimmed(evidence)
    notes += _of_lines(evidence)
    if COMMIT not in evidence.meta.tells and evidence.summary.notes.get(COMMIT):
        notes.append(
            f"property {commits.PROPERTY.number}: the history does not say that its commits are "
            "stored by brokers; whether they are is not judged"
        )
    if evidence.logs is not None:
        return notes
    tails = (
        evidence.entries.where(~evidence.is_settled())
        .groupBy("broker", "replica")
        .agg(F.count("*").alias("entries"), F.min("position").alias("position"))
        .orderBy("broker", "replica")
    )
    notes += [
        f"{tail.broker}/{tail.replica}: {tail.entries} entries or damaged ranges from position "
        f"{tail.position} on are an unsettled tail: no client was told of them"
        for tail in tails.collect()
    ]
    return notes
