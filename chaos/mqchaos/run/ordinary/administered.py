"""Messages that a group was given while tools changed its topic and itself, and where keys went.
Pure.

That what tools have set holds, and which life of a topic a message belongs to, the audit judges by
the acts in the history. It can't know that the harness has waited until all was given; nor that
nobody changed the queues that keys belong to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from mqchaos.history.events import Ack, Act, Deliver, Event, GroupOffset, Reset, Send
from mqchaos.limits import NS_PER_S, RESET_SETTLES_S, SILENT_S
from mqchaos.run.ordinary.given import Place, sentence


class Administered(NamedTuple):
    """Messages that a group was given while tools changed its topic. `acknowledged`: messages of
    the topic's last life, and which of them were `missing`; `acts`: what tools did; `back`: resets
    that took the group back in a queue, and which were `ignored`."""

    acknowledged: int
    missing: list[Place]
    acts: int
    back: int
    ignored: list[Place]


class _Acts(NamedTuple):
    """Acts of tools, and the group's offsets over time, by the answers of nodes; and when each
    broker group was `silent`: no send was acknowledged."""

    acts: list[Act]
    resets: list[Reset]
    passed: Mapping[tuple[str, int], list[tuple[int, int]]]
    silent: Mapping[str, list[tuple[int, int]]]
    end: int

    @property
    def deleted(self) -> list[int]:
        """By when the topic was deleted, each time."""
        return [act.t for act in self.acts if act.act == "delete-topic"]

    def until(self, reset: Reset) -> int:
        """The moment from which on something else may have moved the group."""
        deleted = [act.began for act in self.acts if act.act == "delete-topic"]
        moved = [
            each.began
            for each in self.resets
            if (each.broker, each.queue_id) == (reset.broker, reset.queue_id)
        ]
        return min([self.end, *(began for began in deleted + moved if began > reset.began)])

    def takes_back(self, reset: Reset, lasts_ns: int) -> bool:
        """Whether the group was behind the reset's offset before, in this life of the topic, and
        there was time to follow. While the broker group is silent nobody can."""
        answered, until = reset.t - int(RESET_SETTLES_S * NS_PER_S), self.until(reset)
        silent = self.silent[reset.broker]
        silent_ns = sum(max(0, min(end, until) - max(began, answered)) for began, end in silent)
        if until - answered - silent_ns < lasts_ns:
            return False
        since = max((t for t in self.deleted if t < reset.began), default=0)
        passed = self.passed[reset.broker, reset.queue_id]
        return any(offset > reset.offset for t, offset in passed if since < t < reset.began)


def administered(
    history: Callable[[], Iterator[Event]], group: str, followed_s: float
) -> Administered:
    """Breaches of a whole history, in the order of time. A reset is to be followed within a
    time."""
    acts = _acts_in(history(), group)
    back = [each for each in acts.resets if acts.takes_back(each, int(followed_s * NS_PER_S))]
    followed: set[int] = set()
    awaited = defaultdict(list)
    for number, reset in enumerate(back):
        awaited[reset.broker, reset.queue_id, reset.offset].append(
            (number, reset.began, acts.until(reset))
        )
    last_life = max(acts.deleted, default=0)
    mine: set[str] = set()
    acked: dict[str, Place] = {}
    seen: set[str] = set()
    for event in history():
        if isinstance(event, Send) and event.t > last_life:
            mine.add(event.id)
        elif isinstance(event, Ack) and event.id in mine:
            acked[event.id] = (event.topic, event.broker, event.queue_id, event.offset)
        elif isinstance(event, Deliver) and event.group == group:
            seen.add(event.id)
            for number, began, until in awaited[event.broker, event.queue_id, event.offset]:
                if began < event.t < until:
                    followed.add(number)
    return Administered(
        len(acked),
        sorted(place for unique, place in acked.items() if unique not in seen),
        len(acts.acts) + len(acts.resets),
        len(back),
        [
            (each.topic, each.broker, each.queue_id, each.offset)
            for number, each in enumerate(back)
            if number not in followed
        ],
    )


def _acts_in(events: Iterable[Event], group: str) -> _Acts:
    acts, resets, end = list[Act](), list[Reset](), 0
    passed, silent = defaultdict(list), defaultdict(list)
    acknowledged: dict[str, int] = {}
    for event in events:
        end = event.t
        if isinstance(event, Act):
            acts.append(event)
        elif isinstance(event, Reset):
            resets.append(event)
        elif isinstance(event, GroupOffset) and event.group == group:
            passed[event.broker, event.queue_id].append((event.t, event.offset))
        elif isinstance(event, Ack):
            before = acknowledged.get(event.broker, event.t)
            acknowledged[event.broker] = event.t
            if event.t - before > SILENT_S * NS_PER_S:
                silent[event.broker].append((before, event.t))
    return _Acts(acts, resets, passed, silent, end)


def against_administering(found: Administered) -> list[str]:
    """Faults in how a group and its members took the acts of tools."""
    wrong = []
    if found.missing:
        wrong.append(sentence("were never given to the group", found.missing))
    if found.ignored:
        wrong.append(sentence("were not given again after a reset", found.ignored))
    return wrong


def about_administering(found: Administered) -> str:
    """Counts of the acts, in a sentence."""
    return (
        f"tools did {found.acts:,} things, {found.back:,} of them resets that took a queue back; "
        f"{found.acknowledged:,} messages were sent in the topic's last life, of which "
        f"{len(found.missing):,} were never given to the group"
    )


class Keys(NamedTuple):
    """How many `keys` had messages, how many `messages` these were in each broker group, and of
    which keys they went to several queues: each with those."""

    keys: int
    messages: Mapping[str, int]
    moved: dict[str, list[str]]


def keys_in(events: Iterable[Event]) -> Keys:
    """Breaches by keys in a whole history, in the order of time."""
    keys: dict[str, str] = {}
    queues: defaultdict[str, set[str]] = defaultdict(set)
    messages = Counter[str]()
    for event in events:
        if isinstance(event, Send):
            keys[event.id] = event.key
        elif isinstance(event, Ack) and event.id in keys:
            messages[event.broker] += 1
            queues[keys[event.id]].add(f"{event.broker}/{event.queue_id}")
    moved = {key: sorted(some) for key, some in sorted(queues.items()) if len(some) > 1}
    return Keys(len(queues), messages, moved)


def against_moving(found: Keys) -> list[str]:
    """Which keys did not stay."""
    some = [f"{key} ({', '.join(queues)})" for key, queues in found.moved.items()]
    if not some:
        return []
    return [f"messages of {len(some)} keys went to several queues: {'; '.join(some[:3])}"]


def about_keys(found: Keys) -> str:
    """Counts of the keys, in a sentence."""
    each = ", ".join(f"{number:,} of {broker}" for broker, number in sorted(found.messages.items()))
    return (
        f"{sum(found.messages.values()):,} messages ({each}) had {found.keys} keys, of which "
        f"{len(found.moved)} went to several queues"
    )
