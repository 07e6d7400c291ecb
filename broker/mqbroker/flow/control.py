"""Flow control: holds back sends and reads, for the rates that operators have set. Pure.

A send that is too early is refused with RocketMQ's code and words for an overloaded broker
(SYSTEM_BUSY, its NettyRemotingAbstract), the reason, and when to come again. A pull or pop waits at
the broker if it may wait long enough, and is refused in the same way if not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from dledger.remoting.attributes import Rate, consume_rate, send_rate
from dledger.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from dledger.remoting.codes import ResponseCode
from dledger.remoting.unavailable import RETRY_AFTER_MILLIS
from mqbroker.flow import limits
from mqbroker.flow.bucket import Bucket
from mqbroker.flow.rates import Rates
from mqbroker.limits import PULL_BYTES_MAX, PULL_MESSAGES_MAX
from mqbroker.refusal import Refused


class HeldBack(NamedTuple):
    """Something must wait, for so long."""

    wait_s: float
    reason: str

    def refusal(self) -> Refused:
        """The answer to who can't wait here."""
        wait_ms = min(math.ceil(self.wait_s * 1000), limits.FLOW_WAIT_MS_MAX)
        return Refused(
            ResponseCode.SYSTEM_BUSY,
            f"[OVERLOAD]system busy, start flow control for a while: {self.reason}; come again in "
            f"{wait_ms} ms",
            {RETRY_AFTER_MILLIS: str(wait_ms)},
        )


class Arriving(NamedTuple):
    """Messages that arrive for one topic."""

    topic: TopicConfig
    messages: int
    size_bytes: int


class Grant(NamedTuple):
    """How much a reader may be given now."""

    messages: int
    size_bytes: int


NO_LIMIT = Grant(PULL_MESSAGES_MAX, PULL_BYTES_MAX)


class _Gate:
    """The buckets of one topic or group."""

    def __init__(self, rate: Rate, now_s: float) -> None:
        self.rate = rate
        messages, size = rate
        self._messages = None if messages is None else Bucket(messages, now_s)
        self._bytes = None if size is None else Bucket(size, now_s)

    def held_back(self, what: str, now_s: float) -> HeldBack | None:
        messages_s = self._messages.wait_s(now_s) if self._messages is not None else 0.0
        bytes_s = self._bytes.wait_s(now_s) if self._bytes is not None else 0.0
        wait_s = max(messages_s, bytes_s)
        if wait_s <= 0:
            return None
        per_s = self.rate.messages_per_s if messages_s == wait_s else self.rate.bytes_per_s
        unit = "messages" if messages_s == wait_s else "bytes"
        return HeldBack(wait_s, f"{what} {per_s} {unit}/s")

    def grant(self, now_s: float) -> Grant:
        messages = NO_LIMIT.messages if self._messages is None else self._messages.room(now_s)
        size_bytes = NO_LIMIT.size_bytes if self._bytes is None else self._bytes.room(now_s)
        return Grant(max(1, messages), max(1, size_bytes))

    def take(self, messages: int, size_bytes: int, now_s: float) -> None:
        if self._messages is not None:
            self._messages.take(messages, now_s)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now_s)


class Flow:
    """The buckets of one leader. `clock_s` is a monotonic clock; `counts` has what was held back.

    `group` finds a group's config.
    """

    def __init__(
        self,
        group: Callable[[str], SubscriptionGroupConfig | None],
        counts: Rates,
        clock_s: Callable[[], float],
    ) -> None:
        self._group = group
        self._counts = counts
        self._clock_s = clock_s
        self._topics: dict[str, _Gate] = {}
        self._groups: dict[str, _Gate] = {}

    def reset(self) -> None:
        """Drop the gates of all topics and groups, as a new leadership begins."""
        self._topics.clear()
        self._groups.clear()

    def admit(self, *sends: Arriving) -> None:
        """Admit the messages of one entry, all of them, or raise Refused."""
        rated = [
            (each, rate)
            for each in sends
            if each.topic.attributes and (rate := send_rate(each.topic.attributes)) is not None
        ]
        if not rated:
            return
        now_s = self._clock_s()
        gates = []
        for (topic, messages, size_bytes), rate in rated:
            name = topic.topic_name
            gate = _gate(self._topics, name, rate, now_s)
            held_back = gate.held_back(f"the topic {name!r} takes", now_s)
            if held_back is not None:
                self._counts.send_held_back(name, messages, size_bytes)
                raise held_back.refusal()
            gates.append((gate, messages, size_bytes))
        for gate, messages, size_bytes in gates:
            gate.take(messages, size_bytes, now_s)

    def held_back(self, group: str) -> HeldBack | None:
        """Whether a group has to wait before it is given more."""
        gate, now_s = self._gate_of(group)
        return None if gate is None else gate.held_back(f"the group {group!r} is given", now_s)

    def grant(self, group: str) -> Grant:
        """How much a group may be given, if it does not have to wait."""
        gate, now_s = self._gate_of(group)
        return NO_LIMIT if gate is None else gate.grant(now_s)

    def given(self, group: str, messages: int, size_bytes: int) -> None:
        """A group was given so much."""
        gate, now_s = self._gate_of(group)
        if gate is not None:
            gate.take(messages, size_bytes, now_s)

    def _gate_of(self, group: str) -> tuple[_Gate | None, float]:
        config = self._group(group)
        rate = consume_rate(config.attributes) if config is not None and config.attributes else None
        if rate is None:
            return None, 0.0
        now_s = self._clock_s()
        return _gate(self._groups, group, rate, now_s), now_s


def _gate(gates: dict[str, _Gate], name: str, rate: Rate, now_s: float) -> _Gate:
    """The buckets for a name; new ones if its rate has changed."""
    gate = gates.get(name)
    if gate is None or gate.rate != rate:
        if len(gates) >= limits.FLOW_GATES_MAX:
            del gates[next(iter(gates))]
        gate = gates[name] = _Gate(rate, now_s)
    return gate
