"""Delays: in which queue a message waits for its level or timer. Pure.

A message with the property DELAY waits in the queue of its level (`SCHEDULE_TOPIC_XXXX`, queue id
level - 1) and remembers where it belongs in REAL_TOPIC and REAL_QID. All messages of a level wait
equally long, so they are due in the order in which they were stored. A message with a timer
(TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS; a level has precedence) waits in
`rmq_sys_wheel_timer`, with its due time in TIMER_OUT_MS. Names, bounds and the table of levels are
RocketMQ's (ScheduleMessageService, TimerMessageStore, `messageDelayLevel`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from dledger.errors import ConfigError
from dledger.remoting import message as names
from dledger.remoting.names import SCHEDULE_TOPIC, TIMER_TOPIC
from mqbroker import limits
from mqbroker.leader.waiting.repeats import repeat_of
from mqbroker.refusal import illegal_message

DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
_UNITS_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL: Final = re.compile(r"([0-9]{1,9})([smhd])")


class DelayLevels:
    """The delay of each level, from 1. A level above the last one has the last one's delay."""

    def __init__(self, delays_ms: Sequence[int]) -> None:
        self.delays_ms = tuple(delays_ms)

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """The delays in a `messageDelayLevel`, such as "1s 5s 1m 2h". Raises ConfigError naming the
        part."""
        delays_ms = []
        for part in text.split():
            match = _LEVEL.fullmatch(part)
            if match is None:
                raise ConfigError(
                    f"messageDelayLevel has {part!r}; expected a number with s, m, h or d, like 30s"
                )
            delays_ms.append(int(match[1]) * _UNITS_MS[match[2]])
        if not 0 < len(delays_ms) <= limits.DELAY_LEVELS_MAX:
            raise ConfigError(
                f"messageDelayLevel has {len(delays_ms)} levels, not 1 to {limits.DELAY_LEVELS_MAX}"
            )
        return cls(delays_ms)

    def __len__(self) -> int:
        return len(self.delays_ms)

    def delay_ms(self, queue_id: int) -> int:
        """How long messages of a queue wait. The queue may remain from a longer table of levels."""
        return self.delays_ms[min(queue_id, len(self.delays_ms) - 1)]

    def detour(
        self, topic: str, queue_id: int, properties: dict[str, str], now_ms: int
    ) -> tuple[str, int, dict[str, str]]:
        """Where a message for a queue is stored first, and with which properties.

        Refused if its delay properties make no sense.
        """
        waiting = {names.REAL_TOPIC: topic, names.REAL_QID: str(queue_id)}
        level = delay_level(properties)
        if level > 0:
            queue_id = min(level, len(self.delays_ms)) - 1
            return SCHEDULE_TOPIC, queue_id, properties | waiting
        due_ms = timer_due_ms(properties, now_ms)
        repeat = repeat_of(properties)
        if repeat is not None:
            due_ms = repeat.first_ms(due_ms, now_ms) or due_ms
        if due_ms > now_ms:
            waiting[names.TIMER_OUT_MS] = str(due_ms)
            return TIMER_TOPIC, 0, properties | waiting
        return topic, queue_id, properties


def timer_due_ms(properties: dict[str, str], now_ms: int) -> int:
    """When a message with a timer is due; a time in the past if it has none."""
    if names.TIMER_DELAY_SEC in properties:
        due_ms = now_ms + 1000 * _number(properties, names.TIMER_DELAY_SEC)
    elif names.TIMER_DELAY_MS in properties:
        due_ms = now_ms + _number(properties, names.TIMER_DELAY_MS)
    else:
        due_ms = _number(properties, names.TIMER_DELIVER_MS)
    if due_ms - now_ms > limits.TIMER_DELAY_S_MAX * 1000:
        raise illegal_message(
            f"the message asks to be delivered in {(due_ms - now_ms) // 1000} s; at most "
            f"{limits.TIMER_DELAY_S_MAX} s are taken"
        )
    return due_ms


def delay_level(properties: dict[str, str]) -> int:
    """The level that a message asks for; 0 or less for none. Refused if it is no number."""
    return _number(properties, names.DELAY)


def _number(properties: dict[str, str], name: str) -> int:
    value = properties.get(name, "0")
    try:
        return int(value)
    except ValueError:
        raise illegal_message(f"the property {name} is {value[:100]!r}, not a number") from None
