"""Messages that come again and again: when the next one is due. Pure.

A message with a timer may have a period, or a cron expression. The entry that delivers it also puts
it back to wait, with its next time, which the leader has worked out: no replica looks at a
calendar. So whichever leader goes on, none is delivered twice or left out. What was due while
nobody led is delivered once, and not made up for. It ends when it was delivered as often as it
says, when its own time is over (`EXPIRES_AT_MS`), or when it is taken back.

Such a message is sent once, and stored for ever. So the topics' repeats have a budget, in bytes per
second: what was delivered is paid off before the next time comes. Where repeats ask for more, each
comes later than it says, at the next of its times for which there is room; none is lost. Topics
that are in debt share the budget evenly, and the others notice nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Final, NamedTuple

from dledger.errors import BadInput
from dledger.remoting import message as names
from dledger.remoting.cron import Cron, next_ms, parse_cron, zone_named
from mqbroker import limits
from mqbroker.refusal import illegal_message

PROPERTIES: Final = (
    names.REPEAT_EVERY_MS,
    names.REPEAT_CRON,
    names.REPEAT_ZONE,
    names.REPEATS_LEFT,
)
_SCHEDULES: Final = (names.REPEAT_EVERY_MS.encode(), names.REPEAT_CRON.encode())


class Budget:
    """The bytes that the topics' repeats may cost. It begins anew with each leadership."""

    def __init__(self) -> None:
        self._free_ms: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._free_ms)

    def charge(self, topic: str, size_bytes: int, now_ms: int) -> int:
        """A repeat of a topic is delivered. The next time of it comes no earlier than returned."""
        cost = size_bytes + limits.REPEAT_COST_BYTES
        owing = max(self._free_ms.get(topic, 0.0), now_ms)
        self._free_ms[topic] = owing
        share = limits.REPEATED_BYTES_PER_S_MAX / len(self._free_ms)
        rate = min(share, limits.REPEATED_BYTES_PER_S_TOPIC_MAX)
        self._free_ms[topic] = owing + cost * 1000 / rate
        return int(self._free_ms[topic])

    def settle(self, now_ms: int) -> None:
        """Forget the topics that owe nothing any more."""
        self._free_ms = {topic: at for topic, at in self._free_ms.items() if at > now_ms}


class Repeat(NamedTuple):
    """A period, or the calendar; and how often the message is still to be delivered; None for
    without end."""

    every_ms: int
    left: int | None
    cron: Cron | None = None
    zone: tzinfo = UTC

    def first_ms(self, due_ms: int, now_ms: int) -> int | None:
        """The first time of all, of a message that asks to be delivered at `due_ms`, or at once."""
        if self.cron is None:
            return due_ms if due_ms > now_ms else self.next_ms(due_ms, now_ms)
        return next_ms(self.cron, self.zone, max(due_ms - 1, now_ms))

    def next_ms(self, due_ms: int, now_ms: int) -> int | None:
        """The first time after now, by whole periods from when it was due, or by the calendar."""
        if self.cron is not None:
            return next_ms(self.cron, self.zone, max(due_ms, now_ms))
        missed = max(0, now_ms - due_ms) // self.every_ms
        return due_ms + (missed + 1) * self.every_ms


def repeat_of(properties: Mapping[str, str]) -> Repeat | None:
    """How a message is repeated; None if it is not, or says what can't be."""
    given = properties.get(names.REPEATS_LEFT)
    left = None if given is None else _number(given, limits.REPEATS_MAX)
    if given is not None and not left:
        return None
    if names.REPEAT_CRON in properties:
        return _by_calendar(properties, left)
    every_ms = _number(properties.get(names.REPEAT_EVERY_MS, ""), limits.REPEAT_EVERY_MS_MAX)
    if every_ms is None or every_ms < limits.REPEAT_EVERY_MS_MIN:
        return None
    return Repeat(every_ms, left)


def _by_calendar(properties: Mapping[str, str], left: int | None) -> Repeat | None:
    """A zone was known when the message was sent: a leader that lacks it goes on by UTC."""
    try:
        cron = parse_cron(properties[names.REPEAT_CRON])
    except BadInput:
        return None
    try:
        zone = zone_named(properties.get(names.REPEAT_ZONE, "UTC"))
    except BadInput:
        zone = UTC
    return Repeat(0, left, cron, zone)


def may_repeat(properties: bytes) -> bool:
    """Whether the properties of a record may say that it is repeated."""
    return any(name in properties for name in _SCHEDULES)


def check_repeat(properties: Mapping[str, str], body_bytes: int, *, timed: bool) -> None:
    """Refuse what can't be repeated as it says. All that is added later must fit, too."""
    if not any(name in properties for name in PROPERTIES):
        return
    shown = ", ".join(
        f"{name}={properties[name][:80]!r}" for name in PROPERTIES if name in properties
    )
    reason = _wrong_calendar(properties)
    if reason is None and repeat_of(properties) is None:
        reason = (
            f"the period is {limits.REPEAT_EVERY_MS_MIN} to {limits.REPEAT_EVERY_MS_MAX} ms, and "
            f"without a count it has no end; a count is 1 to {limits.REPEATS_MAX}"
        )
    elif reason is not None:
        pass
    elif not timed:
        reason = "only a message with a timer is repeated: neither with a level nor at once"
    elif body_bytes > limits.REPEATED_BODY_BYTES_MAX:
        reason = f"its body has {body_bytes} bytes, above {limits.REPEATED_BODY_BYTES_MAX}"
    elif len(str(properties)) > limits.REPEATED_PROPERTIES_MAX:
        reason = f"its properties are longer than {limits.REPEATED_PROPERTIES_MAX} characters"
    if reason is not None:
        raise illegal_message(f"a message with {shown}: {reason}")


def _wrong_calendar(properties: Mapping[str, str]) -> str | None:
    """The fault of a cron expression or its zone, if there is one."""
    text, zone = (properties.get(name) for name in (names.REPEAT_CRON, names.REPEAT_ZONE))
    if text is None:
        return None if zone is None else "a time zone is for a cron expression"
    if names.REPEAT_EVERY_MS in properties:
        return "it comes in periods or by a cron expression, not both"
    try:
        parse_cron(text)
        zone_named("UTC" if zone is None else zone)
    except BadInput as error:
        return str(error)
    return None


def again(properties: Mapping[str, str], now_ms: int) -> dict[str, str] | None:
    """The properties with which a timed message waits once more, after it was delivered; None if
    that was the last time.

    `properties` are those that it waited with.
    """
    repeat = repeat_of(properties)
    due_ms = _number(properties.get(names.TIMER_OUT_MS, ""), limits.TIME_MS_MAX)
    if repeat is None or due_ms is None or repeat.left == 1:
        return None
    at_ms = repeat.next_ms(due_ms, now_ms)
    expires_ms = _number(properties.get(names.EXPIRES_AT_MS, ""), limits.TIME_MS_MAX)
    if at_ms is None or at_ms > limits.TIME_MS_MAX:
        return None
    if expires_ms is not None and at_ms >= expires_ms:
        return None
    left = {} if repeat.left is None else {names.REPEATS_LEFT: str(repeat.left - 1)}
    return {**properties, **left, names.TIMER_OUT_MS: str(at_ms)}


def delivered(properties: Mapping[str, str], unique_key: str) -> dict[str, str]:
    """The properties of one delivered copy: a key of its own, and the key of the repeated message.

    It is not repeated itself, if a consumer sends it back to be tried later.
    """
    kept = {name: value for name, value in properties.items() if name not in PROPERTIES}
    original = properties.get(names.UNIQ_KEY, "")
    return {**kept, names.UNIQ_KEY: unique_key, names.REPEAT_OF: original}


def _number(text: str, most: int) -> int | None:
    if not text.isascii() or not text.isdigit() or len(text) > limits.TIME_DIGITS_MAX:
        return None
    value = int(text)
    return value if value <= most else None
