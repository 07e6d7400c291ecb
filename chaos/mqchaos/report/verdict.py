"""The results of a run as data: the audit's verdict.json, and report.json, which adds to it."""

from __future__ import annotations

import msgspec


class Property(msgspec.Struct, frozen=True):
    """The audit's verdict on one property."""

    number: int
    title: str
    holds: bool
    checked: int
    violations: list[dict[str, msgspec.Raw]] = []


class Counts(msgspec.Struct, frozen=True):
    """The audit's table. `stored`: records by replica."""

    sent: int
    acknowledged: int
    stored: dict[str, int]
    consumed: int
    lost: int
    phantom: int
    duplicated: int
    reordered: int
    replicas_equal: bool


class Verdict(msgspec.Struct, frozen=True):
    """What mqaudit writes: "ok" or "violated", and why."""

    verdict: str
    properties: list[Property]
    counts: Counts


class GapFound(msgspec.Struct, frozen=True):
    """The longest pause between acknowledged sends after one fault. Times in s."""

    fault: str
    node: str
    at_s: float
    gap_s: float


class Report(msgspec.Struct, frozen=True):
    """report.json. `holds` only if the audit found nothing and every measured bound was kept."""

    holds: bool
    scenario: str
    seed: int
    replay: str
    seconds: float
    counts: Counts
    properties: list[Property]
    gaps: list[GapFound]
    gap_median_s: float | None
    gap_worst_s: float | None
    exceptions: int
    findings: list[str]
    pauses_judged: bool = True
