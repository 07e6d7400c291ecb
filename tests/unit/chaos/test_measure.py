"""Figures of a history: gaps, series, and each node's role over time."""

from __future__ import annotations

import pytest

from mqchaos.faults.kinds import KINDS, Kind
from mqchaos.history.events import Ack, Event, Fail, Fault, Lead, Send
from mqchaos.limits import BUCKETS_MAX, FAILURES_KEPT_MAX
from mqchaos.report.measure import Span, Timeline, failovers, spans, timeline
from mqchaos.report.pauses import Gap, Mark, Pauses
from mqchaos.report.slots import Latencies, Slots

S = 1_000_000_000


def ack(at_s: float, name: str = "id") -> Ack:
    return Ack(round(at_s * S), "p0", name, "T", "broker-a", 0, 0, 0)


def send(at_s: float, name: str = "id") -> Send:
    return Send(round(at_s * S), "p0", name, "T", "k", 0, 0)


def gaps_of(
    acked: list[float], faults: list[Mark], end_s: float = 10.0, *, waiting: bool = False
) -> list[Gap]:
    """Gaps that a reader of a history finds, with all events in the order of time."""
    pauses = Pauses()
    moments = [(fault.at_s, 0, fault) for fault in faults if fault.what in KINDS]
    for at_s, _, fault in sorted([*moments, *((at_s, -1, None) for at_s in acked)], key=order):
        if fault is None:
            pauses.acked(at_s)
        else:
            pauses.injected(fault)
    return pauses.gaps(end_s, waiting=waiting)


def order(moment: tuple[float, int, Mark | None]) -> tuple[float, int]:
    return moment[:2]


def test_times_are_seconds_since_the_first_event() -> None:
    """The monotonic clock's zero means nothing to a reader."""
    events: list[Event] = [Lead(100 * S, "broker-a", "n1", 4), ack(101.5), ack(103.0)]

    found = timeline(events)

    assert [number for number, slot in enumerate(found.slots.all) if slot.acked] == [15, 30]
    assert found.leads == [Mark(0.0, "lead", "n1", 4)]
    assert found.end_s == 3.0


def test_the_gap_of_a_kill_is_the_longest_pause_that_ends_after_it() -> None:
    """The pause begins with the last acknowledgement before the kill, not with the kill."""
    (gap,) = gaps_of([1.0, 1.9, 2.5, 2.6], [Mark(2.0, "kill", "n0")])

    assert (gap.began_s, gap.length_s) == (1.9, pytest.approx(0.6))


def test_a_pause_at_the_return_of_a_node_counts_for_its_kill() -> None:
    """A pause at a node's return counts for its kill, as part of that loss."""
    (gap,) = gaps_of(
        [1.0, 2.1, 2.2, 4.2, 4.3],
        [Mark(2.0, "kill", "n0"), Mark(3.0, "restart", "n0")],
    )

    assert (gap.began_s, gap.length_s) == (2.2, pytest.approx(2.0))


def test_each_kill_has_its_own_gap() -> None:
    """The pause after a second kill is not the first one's, but for what came before that kill."""
    kills = [Mark(1.2, "kill", "n0"), Mark(2.5, "kill", "n1")]

    found = gaps_of([1.0, 1.5, 1.8, 2.4, 5.0, 5.2], kills)
    overlapping = gaps_of([1.0, 1.1, 5.0, 5.2], kills)

    assert [(gap.began_s, round(gap.length_s, 3)) for gap in found] == [(1.8, 0.6), (2.4, 2.6)]
    assert [(gap.began_s, round(gap.length_s, 3)) for gap in overlapping] == [
        (1.1, 1.4),
        (1.1, 3.9),
    ]


def test_sends_that_never_resume_are_a_gap_until_the_end() -> None:
    """A group that stays dead is not reported as a short pause."""
    (gap,) = gaps_of([], [Mark(2.0, "kill", "n0")], 9.0, waiting=True)

    assert gap.length_s == 7.0


def test_a_kill_after_the_last_send_is_no_gap() -> None:
    """A kill after the last acknowledged send makes no gap: no client waits."""
    events = [send(1.0), ack(1.5), Fault(2 * S, "kill", "b", "n0"), Lead(9 * S, "b", "n1", 2)]

    assert [gap.length_s for gap in timeline(events).gaps] == [0.0]


def test_failed_sends_are_kept_with_their_words() -> None:
    """An exception that reached the application is told as it was."""
    assert timeline([Fail(1, "p0", "x", True, "SendFailed: no")]).failures == ["SendFailed: no"]


def test_of_many_failures_the_first_words_are_kept_and_all_are_counted() -> None:
    """A run that fails a million times is told in bounded memory."""
    found = timeline(Fail(number, "p0", "x", True, "no") for number in range(FAILURES_KEPT_MAX * 3))

    assert (len(found.failures), found.failed) == (FAILURES_KEPT_MAX, FAILURES_KEPT_MAX * 3)


def test_slots_widen_with_the_run_and_lose_nothing() -> None:
    """A minute is kept in steps of less than half a second, a day in as many slots."""
    slots = Slots()
    for at_s in range(60):
        slots.at(at_s).acked += 1
    assert slots.width_s < 0.5

    slots.at(86_400.0).acked += 1

    assert len(slots.all) <= BUCKETS_MAX
    assert sum(slot.acked for slot in slots.all) == 61
    assert slots.at(-1.0) is slots.all[0]


def test_a_latency_is_from_a_send_to_its_own_acknowledgement() -> None:
    """A latency is from a send to its own acknowledgement, within five per cent."""
    found = timeline([send(0.0, "a"), send(0.1, "b"), ack(0.3, "b"), ack(1.0, "a"), ack(1.1, "?")])

    assert found.latencies.quantiles([0.5, 1.0]) == pytest.approx([0.2, 1.0], rel=0.05)


def test_quantiles_of_nothing_are_none() -> None:
    """Quantiles of no samples are None; any latency has a bin."""
    odd = Latencies()
    for seconds in (-1.0, 0.0, 1e9):
        odd.add(seconds)

    assert Latencies().quantiles([0.5]) == []
    assert odd.quantiles([1.0]) == pytest.approx([1e9], rel=0.05)


def test_a_failover_is_from_the_leaders_fault_to_the_next_leader() -> None:
    """A failover is from a leader's fault to the next leader; followers' faults are none."""
    found = Timeline(
        leads=[Mark(0.5, "lead", "n0", 1), Mark(2.2, "lead", "n1", 2)],
        faults=[
            *(Mark(1.0, "kill", "n2"), Mark(2.0, "kill-majority", "n0")),
            *(Mark(2.0, "kill-majority", "n2"), Mark(3.0, "kill", "n1")),
        ],
    )

    assert [(each.fault, each.leader, round(each.led_after_s, 3)) for each in failovers(found)] == [
        ("kill-majority", "n1", 0.2)
    ]


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
    """A fault of several nodes has one gap with all their names."""
    killed = [Mark(2.0, "kill-majority", node) for node in ("n0", "n2")]

    (gap,) = gaps_of([1.0, 1.9, 4.5], killed)

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
    """A node has its fault's state until the end of that fault; unknown words end nothing."""
    found = Timeline(
        faults=[Mark(1.0, kind.name, "n0"), Mark(3.0, kind.undone, "n0"), Mark(4.0, "?", "n0")],
        end_s=5.0,
    )

    assert [(span.state, span.began_s, span.ended_s) for span in spans(["n0"], found)] == [
        ("follower", 0.0, 1.0),
        (kind.state, 1.0, 3.0),
        ("follower", 3.0, 5.0),
    ]
