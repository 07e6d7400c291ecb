"""How long queues pause when their reader changes, read off the history at the end of a run. Pure.

A queue that has messages pauses from the last one that its old reader's handler was given until the
first one of its new reader, or from when that one was acknowledged, if it came later. A message
that was passed over, as a popped one that stays hidden is, pauses its queue from the first one
behind it. A slow machine's backlog is no pause: it is read message after message. Time in which no
reader is up does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from mqchaos.history.events import Ack, Deliver, Event, Rebalance
from mqchaos.limits import NS_PER_S
from mqchaos.run.ordinary.given import Place, place_of

Span = tuple[int, int]


class HandedOver(NamedTuple):
    """Handovers of queues between clients of one group. `times`: how often a queue's next message
    was another client's; `pause_s`: the longest pause, before the message at `place`."""

    times: int = 0
    pause_s: float = 0.0
    place: Place | None = None


def handed_over(events: Iterable[Event], reader: str) -> HandedOver:
    """Handovers in what a reader was given: a group, or each of those that read all."""
    acked: dict[Place, int] = {}
    given: dict[Place, Deliver] = {}
    up: dict[str, Span] = {}
    for event in events:
        if isinstance(event, Ack):
            if not event.waiting:
                acked[place_of(event)] = event.t
        elif isinstance(event, Deliver | Rebalance) and event.group == reader:
            up[event.client] = (up.get(event.client, (event.t, 0))[0], event.t)
            if isinstance(event, Deliver):
                given.setdefault(place_of(event), event)
    spans = _joined(up.values())
    order, longest, at = sorted(given), 0, None
    changes = [
        (after, given[before].t)
        for before, after in pairwise(order)
        if before[:3] == after[:3] and given[before].client != given[after].client
    ]
    for place, since in (*changes, *_passed_over(order, given)):
        now = given[place].t
        pause = _within(spans, max(since, acked.get(place, now)), now)
        if pause > longest:
            longest, at = pause, place
    return HandedOver(len(changes), longest / NS_PER_S, at)


def _passed_over(
    order: Sequence[Place], given: Mapping[Place, Deliver]
) -> Iterator[tuple[Place, int]]:
    """Messages that were given after one behind them in their queue, and when that was."""
    first: dict[tuple[str, str, int], int] = {}
    for place in reversed(order):
        now, queue = given[place].t, place[:3]
        behind = first.setdefault(queue, now)
        if behind < now:
            yield place, behind
        first[queue] = min(behind, now)


def longest_of(each: Iterable[HandedOver]) -> HandedOver:
    """The longest handover of each of several readers of all."""
    found = [*each]
    if not found:
        return HandedOver()
    longest = max(found, key=lambda one: one.pause_s)
    return longest._replace(times=sum(one.times for one in found))


def against_pausing(found: HandedOver, pause_s_max: float) -> list[str]:
    """Faults in how queues were handed over."""
    if found.place is None or found.pause_s <= pause_s_max:
        return []
    topic, broker, queue, at = found.place
    return [
        f"a queue was read by nobody for {found.pause_s:.1f} s when its reader changed, above "
        f"{pause_s_max:.1f} s: {topic}/{broker}/{queue}/{at}"
    ]


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order; those that overlap are one."""
    joined: list[Span] = []
    for begins, ends in sorted(spans):
        if joined and begins <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(ends, joined[-1][1]))
        else:
            joined.append((begins, ends))
    return joined


def _within(spans: Iterable[Span], since: int, until: int) -> int:
    """How much of that time they cover."""
    return sum(max(0, min(until, ends) - max(since, begins)) for begins, ends in spans)
