"""What is read off a history: gaps, series, and who was what."""

from __future__ import annotations

import pytest

from mqchaos.faults.kinds import KINDS, Kind
from mqchaos.report.measure import (
    Mark,
    Series,
    Span,
    Timeline,
    bucket_width,
    series,
    spans,
    timeline,
)
from mqchaos.run.history import Ack, Event, Fail, Lead

S = 1_000_000_000


def ack(at_s: float) -> Ack:
    return Ack(round(at_s * S), "p0", "id", "T", "broker-a", 0, 0, 0)


def run_of(acked: list[float], faults: list[Mark], end_s: float = 10.0) -> Timeline:
    return Timeline(acked=acked, faults=faults, end_s=end_s)


def test_times_are_seconds_since_the_first_event() -> None:
    """The monotonic clock's zero means nothing to a reader."""
    events: list[Event] = [ack(103.0), Lead(100 * S, "broker-a", "n1", 4), ack(101.5)]

    found = timeline(events)

    assert found.acked == [1.5, 3.0]
    assert found.leads == [Mark(0.0, "lead", "n1", 4)]
    assert found.end_s == 3.0


def test_the_gap_of_a_kill_is_the_longest_pause_that_ends_after_it() -> None:
    """The pause begins with the last acknowledgement before the kill, not with the kill."""
    found = run_of([1.0, 1.9, 2.5, 2.6], [Mark(2.0, "kill", "n0")])

    (gap,) = found.gaps()

    assert (gap.began_s, gap.length_s) == (1.9, pytest.approx(0.6))


def test_a_pause_at_the_return_of_a_node_counts_for_its_kill() -> None:
    """What a node's return costs is part of the price of its loss."""
    found = run_of(
        [1.0, 2.1, 2.2, 4.2, 4.3],
        [Mark(2.0, "kill", "n0"), Mark(3.0, "restart", "n0")],
    )

    (gap,) = found.gaps()

    assert (gap.began_s, gap.length_s) == (2.2, pytest.approx(2.0))


def test_each_kill_has_its_own_gap() -> None:
    """The pause after a second kill is not the first one's, but for what came before that kill."""
    kills = [Mark(1.2, "kill", "n0"), Mark(2.5, "kill", "n1")]

    found = run_of([1.0, 1.5, 1.8, 2.4, 5.0, 5.2], kills).gaps()
    overlapping = run_of([1.0, 1.1, 5.0, 5.2], kills).gaps()

    assert [(gap.began_s, round(gap.length_s, 3)) for gap in found] == [(1.8, 0.6), (2.4, 2.6)]
    assert [(gap.began_s, round(gap.length_s, 3)) for gap in overlapping] == [
        (1.1, 1.4),
        (1.1, 3.9),
    ]


def test_sends_that_never_resume_are_a_gap_until_the_end() -> None:
    """A group that stays dead is not reported as a short pause."""
    found = Timeline(sent=[1.5], faults=[Mark(2.0, "kill", "n0")], end_s=9.0)

    assert found.gaps()[0].length_s == 7.0


def test_a_kill_after_the_last_send_is_no_gap() -> None:
    """Everything was acknowledged; nobody waits while the rest of the run comes to its end."""
    found = Timeline(sent=[1.0], acked=[1.5], faults=[Mark(2.0, "kill", "n0")], end_s=9.0)

    assert [gap.length_s for gap in found.gaps()] == [0.0]


def test_failed_sends_are_kept_with_their_words() -> None:
    """An exception that reached the application is told as it was."""
    assert timeline([Fail(1, "p0", "x", True, "SendFailed: no")]).failures == ["SendFailed: no"]


def test_a_series_counts_per_second_and_loses_nothing() -> None:
    """Rates times widths add up to the events, the last moment included."""
    assert series([0.0, 0.1, 0.6, 1.0], 1.0, 0.5) == Series(0.5, (4.0, 2.0, 2.0))


def test_buckets_show_a_short_gap_of_a_short_run() -> None:
    """A minute is drawn in steps of less than half a second, an hour in few enough steps."""
    assert bucket_width(60.0) <= 0.25
    assert 3600.0 / bucket_width(3600.0) <= 400


def test_a_node_leads_until_it_is_killed_or_another_leads() -> None:
    """Spans cover the whole run without holes, node by node."""
    found = Timeline(
        leads=[Mark(1.0, "lead", "n0", 1), Mark(4.0, "lead", "n1", 2)],
        faults=[Mark(3.0, "kill", "n0"), Mark(6.0, "restart", "n0")],
        end_s=9.0,
    )

    assert spans(["n0", "n1"], found) == [
        Span("n0", "follower", 0.0, 1.0),
        Span("n0", "leader", 1.0, 3.0, 1),
        Span("n0", "down", 3.0, 6.0),
        Span("n0", "follower", 6.0, 9.0),
        Span("n1", "follower", 0.0, 4.0),
        Span("n1", "leader", 4.0, 9.0, 2),
    ]


def test_a_fault_of_several_nodes_has_one_gap() -> None:
    """What is felt of a majority's death is felt once."""
    killed = [Mark(2.0, "kill-majority", node) for node in ("n0", "n2")]

    (gap,) = run_of([1.0, 1.9, 4.5], killed).gaps()

    assert gap.fault.node == "n0, n2"
    assert gap.length_s == pytest.approx(2.6)


def test_a_node_stays_what_it_is_at_a_fault_that_takes_nothing_from_it() -> None:
    """A leader that hands over is the leader until another is seen to lead."""
    found = Timeline(
        leads=[Mark(1.0, "lead", "n0", 1)], faults=[Mark(2.0, "transfer", "n0")], end_s=3.0
    )

    assert spans(["n0"], found)[-1] == Span("n0", "leader", 1.0, 3.0, 1)


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS.values() if kind.state], ids=lambda kind: kind.name
)
def test_a_node_is_what_its_fault_makes_of_it(kind: Kind) -> None:
    """From the fault to its end, whatever the kind; a word that nobody knows ends nothing."""
    found = Timeline(
        faults=[Mark(1.0, kind.name, "n0"), Mark(3.0, kind.undone, "n0"), Mark(4.0, "?", "n0")],
        end_s=5.0,
    )

    assert [(span.state, span.began_s, span.ended_s) for span in spans(["n0"], found)] == [
        ("follower", 0.0, 1.0),
        (kind.state, 1.0, 3.0),
        ("follower", 3.0, 5.0),
    ]
