"""Figures of messages that wait for their time, reported by the leader.

A message waits in the timer from the entry that stores it, so none is behind on its way there; how
many are behind on their way out, and for how long, is counted in the timer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dledger.metrics.text import Family, Sample, Writer
from dledger.remoting.names import TIMER_TOPIC
from mqbroker.flow import limits
from mqbroker.metrics.naming import STORE
from mqbroker.metrics.traffic import Names, by_topic, times_by_topic

if TYPE_CHECKING:
    from mqbroker.flow.rates import Rates
    from mqbroker.state.machine import Machine

_TIMING: Final = Family("rocketmq_timing_messages", "gauge", "Messages that wait for their time.")
_ENQUEUED: Final = Family("rocketmq_timer_enqueue_total", "counter", "Messages that began to wait.")
_DEQUEUED: Final = Family("rocketmq_timer_dequeue_total", "counter", "Messages whose time came.")
_AHEAD: Final = Family(
    "rocketmq_delay_message_latency_seconds",
    "histogram",
    "How far ahead of their birth messages are due.",
)
_LAG: Final = Family("rocketmq_timer_dequeue_lag", "gauge", "Messages that are due.")
_LATE: Final = Family(
    "rocketmq_timer_dequeue_latency_milliseconds", "gauge", "For how long the first is due."
)
_SNAPSHOT: Final = Family(
    "rocketmq_timer_message_snapshot",
    "gauge",
    "Messages that are due between the bound before and this one, in seconds from now.",
)


@dataclass(eq=False, slots=True)
class TimerFigures:
    """Figures of delayed messages: how many wait, came and were delivered."""

    _machine: Machine
    _rates: Rates
    _names: Names
    _clock_ms: Callable[[], int]

    def pieces(self, writer: Writer) -> Iterator[str]:
        """The metric families as text, a piece at a time."""
        traffic, names = self._rates.traffic, self._names
        waiting = yield from by_topic(self._machine.timers.owners.rows_by(0), names)
        yield from writer.family(_TIMING, _stored(waiting))
        enqueued = {topic: sum(times.counts) for topic, times in traffic.ahead.items()}
        yield from writer.family(_ENQUEUED, _stored((yield from by_topic(enqueued, names))))
        dequeued = {
            topic: row.messages
            for (topic, origin), row in traffic.arrived.items()
            if origin == TIMER_TOPIC and topic != TIMER_TOPIC
        }
        yield from writer.family(_DEQUEUED, _stored((yield from by_topic(dequeued, names))))
        ahead = yield from times_by_topic(traffic.ahead, names)
        yield from writer.family(_AHEAD, _stored(ahead))
        yield from self._distribution(writer)

    def _distribution(self, writer: Writer) -> Iterator[str]:
        """When messages are due; each look at a million of them is a step."""
        timers, now_ms = self._machine.timers, self._clock_ms()
        next_ms = timers.next_ms()
        late_ms = 0 if next_ms is None else max(0, now_ms - next_ms)
        before = due = timers.before(now_ms)
        yield from writer.family(_LAG, [(STORE, due)])
        yield from writer.family(_LATE, [(STORE, late_ms)])
        samples: list[Sample] = []
        for bound_s in limits.TIMER_BOUNDS_S:
            yield ""
            count = timers.before(now_ms + 1000 * bound_s)
            samples.append(({"timer_bound_s": str(bound_s)}, max(0, count - before)))
            before = count
        yield from writer.family(_SNAPSHOT, _stored(samples))


def _stored(samples: list[Sample]) -> list[Sample]:
    """The samples with the labels of the store, as in RocketMQ."""
    return [({**labels, **STORE}, value) for labels, value in samples]
