"""The results of a run as data: report.json, which adds to the audit's verdict what is measured."""

from __future__ import annotations

from typing import Final

import msgspec

from dledger.verdict.form import Property

LATENCY_SHARES: Final = (0.5, 0.9, 0.99, 0.999, 1.0)


class Counts(msgspec.Struct, frozen=True):
    """Counts of messages by the audit. `stored`: records by replica; nothing where none was looked
    at."""

    sent: int
    acknowledged: int
    stored: dict[str, int]
    consumed: int
    lost: int
    phantom: int
    duplicated: int
    reordered: int
    replicas_equal: bool | None = None


class GapFound(msgspec.Struct, frozen=True):
    """The longest pause between acknowledged sends after one fault. Times in s."""

    fault: str
    node: str
    at_s: float
    gap_s: float


class FailoverFound(msgspec.Struct, frozen=True):
    """A fault that hurt whoever led, and how long it took until another was seen to lead."""

    fault: str
    node: str
    at_s: float
    leader: str
    led_after_s: float


class Latency(msgspec.Struct, frozen=True):
    """How long acknowledgements took: so many of all (LATENCY_SHARES) came within so long."""

    quantiles_s: list[float]
    shares: tuple[float, ...] = LATENCY_SHARES


class Report(msgspec.Struct, frozen=True):
    """Content of report.json; `holds` only if the audit found nothing and every measured bound was
    kept."""

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
    pauses_factor: float = 1.0
    slowness: float = 1.0
    failovers: list[FailoverFound] = []
    latency: Latency | None = None
    notes: list[str] = []
