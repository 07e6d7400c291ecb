"""Acknowledged messages that a group was given: read off the history at the end of a run. Pure.

The audit takes a message that nobody was given for one that is still to come, and one that came
twice for one that was repeated: from outside both may be. The harness knows more: it has waited
until the group had all of it, whether a fault excuses a repetition, and which queues are younger
than the group. Each sentence here is about a run's ordinary life: a consumer that is deployed anew,
a topic that gets queues, a program that forks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from mqchaos.history.events import Ack, Deliver, Event, Fault, Rebalance
from mqchaos.limits import NS_PER_S

Place: TypeAlias = tuple[str, str, int, int]
"""Topic, broker, queue, offset."""


class Given(NamedTuple):
    """Acknowledged messages of a topic, and those that a group was not given, or twice. `missing`:
    what was acknowledged, and never given. `twice`: what was given again.

    `wait_s`: the longest time from an acknowledgement until the message was given; `faults`: how
    many were injected or healed.
    """

    acknowledged: int
    missing: list[Place]
    twice: list[Place]
    wait_s: float
    faults: int


def given(events: Iterable[Event], group: str, first_queue: int = 0) -> Given:
    """Messages given, of the queues from this one on."""
    acked: dict[Place, int] = {}
    first: dict[Place, int] = {}
    twice: list[Place] = []
    faults = 0
    for event in events:
        if isinstance(event, Fault):
            faults += 1
        elif not isinstance(event, Ack | Deliver) or event.queue_id < first_queue:
            continue
        elif isinstance(event, Ack):
            if not event.waiting:
                acked[place_of(event)] = event.t
        elif event.group == group:
            if place_of(event) in first:
                twice.append(place_of(event))
            first.setdefault(place_of(event), event.t)
    missing = sorted(acked.keys() - first.keys())
    waits = [first[place] - t for place, t in acked.items() if place in first]
    return Given(len(acked), missing, twice, max([*waits, 0]) / NS_PER_S, faults)


def all_given(each: Sequence[Given]) -> Given:
    """Messages given to each of several readers of all."""
    return Given(
        sum(one.acknowledged for one in each),
        [place for one in each for place in one.missing],
        [place for one in each for place in one.twice],
        max((one.wait_s for one in each), default=0.0),
        max((one.faults for one in each), default=0),
    )


class Shared(NamedTuple):
    """Findings about processes that share a program's clients.

    `twice`: places that two sends were answered; `held_s`: the longest time for which two members
    of the group had a queue at once.
    """

    acknowledged: int
    twice: list[Place]
    held_s: float


def shared(events: Iterable[Event], group: str) -> Shared:
    """Messages shared by groups in a whole history, in the order of time."""
    acked: set[Place] = set()
    twice: list[Place] = []
    held: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    longest, now = 0, 0
    for event in events:
        now = event.t
        if isinstance(event, Ack) and not event.waiting:
            if place_of(event) in acked:
                twice.append(place_of(event))
            acked.add(place_of(event))
        elif isinstance(event, Rebalance) and event.group == group:
            for queue in [*held]:
                if queue not in event.queues and event.client in held[queue]:
                    longest = max(longest, _together(held[queue], now))
                    del held[queue][event.client]
            for queue in event.queues:
                held[queue].setdefault(event.client, now)
    longest = max([longest, *(_together(holders, now) for holders in held.values())])
    return Shared(len(acked), twice, longest / NS_PER_S)


def _together(holders: Mapping[str, int], now: int) -> int:
    """For how long two have had a queue by now: since the second one came."""
    return now - sorted(holders.values())[1] if len(holders) > 1 else 0


def place_of(event: Ack | Deliver) -> Place:
    """Topic, broker, queue and offset of an event's message."""
    return event.topic, event.broker, event.queue_id, event.offset


def sentence(what: str, places: Sequence[Place]) -> str:
    """A sentence with the first places."""
    named = [f"{topic}/{broker}/{queue}/{at}" for topic, broker, queue, at in places]
    return f"{len(places):,} messages {what}: {', '.join(named[:3])}"


def against_deploying(found: Given) -> list[str]:
    """Faults in how a group that was deployed anew was given its messages.

    While a leader dies a commit or an acknowledgement may be lost.
    """
    wrong = against_skipping(found)
    if found.twice and not found.faults:
        wrong.append(sentence("were handled twice", found.twice))
    return wrong


def about_deploying(found: Given, times: int, pause_s: float) -> str:
    """Counts of the deployments, in a sentence of the report."""
    return (
        f"consumers were deployed {times} times; of {found.acknowledged:,} messages "
        f"{len(found.missing):,} were never given and {len(found.twice):,} twice; a queue paused "
        f"for {pause_s:.2f} s at most, and the latest message came after {found.wait_s:.2f} s"
    )


def about_younger(found: Given) -> str:
    """Counts of the queues that are younger than the group, in a sentence of the report."""
    return (
        f"{found.acknowledged:,} messages were sent to queues younger than the group, of which "
        f"{len(found.missing):,} were never given to it"
    )


def against_skipping(found: Given) -> list[str]:
    """Messages that were acknowledged and never given."""
    if not found.missing:
        return []
    return [sentence("were never given to the group", found.missing)]


def against_sharing(found: Shared, held_s_max: float) -> list[str]:
    """Faults between processes that have copies of one client."""
    wrong = []
    if found.twice:
        wrong.append(sentence("were acknowledged at the place of another", found.twice))
    if found.held_s > held_s_max:
        wrong.append(
            f"two members had a queue for {found.held_s:.1f} s at once, above {held_s_max:.1f} s: "
            "each was given its messages"
        )
    return wrong


def about_sharing(found: Shared) -> str:
    """Counts of the shared clients, in a sentence of the report."""
    return (
        f"forked producers had {found.acknowledged:,} messages acknowledged, of which "
        f"{len(found.twice):,} at the place of another; two members had a queue at once for "
        f"{found.held_s:.2f} s"
    )
