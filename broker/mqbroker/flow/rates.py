"""Counters of messages in and out, for the tools: rates over the last 10 s, 1 min and 10 min. Pure.

Memory of this process only, as in RocketMQ: after a failover the new leader counts from zero.
`mqbroker.flow.statistics` has the same traffic by topic and group.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from mqbroker.flow import limits
from mqbroker.flow.statistics import (
    BROKER_GET,
    BROKER_PUT,
    GET,
    PUT,
    READ_HELD_BACK,
    SEND_BACK,
    SEND_HELD_BACK,
    Statistics,
)
from mqbroker.flow.traffic import Traffic

#: group, topic, queue id
GroupQueue: TypeAlias = tuple[str, str, int]


class Counter:
    """A total, with samples of it taken every second for ten minutes, and at midnight."""

    def __init__(self) -> None:
        self.total = 0
        #: The totals when yesterday and today began, or when the process did.
        self.yesterday_morning = 0
        self.this_morning = 0
        self._samples: deque[int] = deque(maxlen=limits.RATE_WINDOWS_S[-1] + 1)

    def sample(self) -> None:
        """Remember the total: call this once a second."""
        self._samples.append(self.total)

    def new_day(self) -> None:
        """Keep the totals at which yesterday and today began; called at midnight."""
        self.yesterday_morning, self.this_morning = self.this_morning, self.total

    def per_second(self) -> list[float]:
        """The mean rates over 10 s, 1 min and 10 min, or over what there is of them."""
        newest = len(self._samples) - 1
        spans = [min(window_s, newest) for window_s in limits.RATE_WINDOWS_S]
        return [
            (self._samples[newest] - self._samples[newest - span]) / span if span > 0 else 0.0
            for span in spans
        ]


class Rates:
    """The counts of a broker."""

    def __init__(self) -> None:
        self.put_messages = Counter()
        self.put_bytes = Counter()
        self.got_messages = Counter()
        self.pulls_found = Counter()
        self.pulls_missed = Counter()
        self.sends_held_back = Counter()
        self.reads_held_back = Counter()
        self.repeats_put_off = Counter()
        self.statistics = Statistics()
        self.traffic = Traffic()
        self._pull_offsets: dict[GroupQueue, tuple[int, float]] = {}
        self._now_s = 0.0
        self._day: int | None = None

    def put(self, topic: str, messages: int, size_bytes: int, origin: str = "") -> None:
        """Messages were stored by one request. `origin`: the topic where they waited."""
        self.traffic.put(topic, origin, messages, size_bytes)
        self.put_messages.total += messages
        self.put_bytes.total += size_bytes
        self.statistics.count(PUT, topic, messages, size_bytes)
        self.statistics.count(BROKER_PUT, "", messages, size_bytes)

    def got(self, queue: GroupQueue, messages: int, size_bytes: int, next_offset: int) -> None:
        """A pull was answered; the group's next one will be from `next_offset`."""
        if not messages:
            self.pulls_missed.total += 1
            return
        group, topic, _ = queue
        self.pulls_found.total += 1
        self.got_messages.total += messages
        self.statistics.count(GET, f"{topic}@{group}", messages, size_bytes)
        self.statistics.count(BROKER_GET, "", messages, size_bytes)
        if queue not in self._pull_offsets and len(self._pull_offsets) >= limits.PULL_OFFSETS_MAX:
            del self._pull_offsets[next(iter(self._pull_offsets))]
        self._pull_offsets[queue] = (next_offset, self._now_s)

    def send_held_back(self, topic: str, messages: int, size_bytes: int) -> None:
        """A send came too early for its topic's rate."""
        self.sends_held_back.total += 1
        self.statistics.count(SEND_HELD_BACK, topic, messages, size_bytes)

    def read_held_back(self, group: str) -> None:
        """A pull or pop came too early for its group's rate: it had to wait, or was refused."""
        self.reads_held_back.total += 1
        self.statistics.count(READ_HELD_BACK, group, 1, 0)

    def sent_back(self, group: str, topic: str) -> None:
        """A group sent a message of `topic` back, to try it again later."""
        self.statistics.count(SEND_BACK, f"{topic}@{group}", 1, 0)

    def pull_offset(self, queue: GroupQueue) -> int:
        """The offset up to which a group has pulled, as far as this process knows; else 0."""
        return self._pull_offsets.get(queue, (0, 0.0))[0]

    def pulled_at_s(self, queue: GroupQueue) -> float:
        """When a group pulled last, to a second, by the clock of `sample`; else 0."""
        return self._pull_offsets.get(queue, (0, 0.0))[1]

    def topic_ended(self, topic: str) -> None:
        """A topic was deleted: nobody has pulled of a new one with its name."""
        self.traffic.topic_ended(topic)
        self._pull_offsets = {key: at for key, at in self._pull_offsets.items() if key[1] != topic}

    def sample(self, now_s: float, day: int) -> None:
        """Call this once a second; `day` is another number after local midnight."""
        counters = [value for value in vars(self).values() if isinstance(value, Counter)]
        for counter in counters:
            counter.sample()
            if self._day not in (None, day):
                counter.new_day()
        self._day, self._now_s = day, now_s
        self.statistics.sample(now_s)
