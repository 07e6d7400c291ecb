"""Messages that come again and again: when the next one is due. Pure.

A message with a timer may have a period. The entry that delivers it also puts it back to wait, with
its next time: so whichever leader goes on, none is delivered twice or left out. What was due while
nobody led is delivered once, and not made up for. It ends when it was delivered as often as it
says, when its own time is over (`EXPIRES_AT_MS`), or when it is taken back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dledger.remoting import message as names
from dledger.remoting.codes import ResponseCode
from mqbroker import limits
from mqbroker.refusal import Refused

PROPERTIES: Final = (names.REPEAT_EVERY_MS, names.REPEATS_LEFT)


class Repeat(NamedTuple):
    """A period, and how often the message is still to be delivered; None for without end."""

    every_ms: int
    left: int | None

    def next_ms(self, due_ms: int, now_ms: int) -> int:
        """The first time after now, by whole periods from when it was due."""
        missed = max(0, now_ms - due_ms) // self.every_ms
        return due_ms + (missed + 1) * self.every_ms


def repeat_of(properties: Mapping[str, str]) -> Repeat | None:
    """How a message is repeated; None if it is not, or says what can't be."""
    every_ms = _number(properties.get(names.REPEAT_EVERY_MS, ""), limits.REPEAT_EVERY_MS_MAX)
    if every_ms is None or every_ms < limits.REPEAT_EVERY_MS_MIN:
        return None
    told = properties.get(names.REPEATS_LEFT)
    left = None if told is None else _number(told, limits.REPEATS_MAX)
    return None if told is not None and not left else Repeat(every_ms, left)


def check_repeat(properties: Mapping[str, str], body_bytes: int, *, timed: bool) -> None:
    """Refuse what can't be repeated as it says. All that is added later must fit, too."""
    if not any(name in properties for name in PROPERTIES):
        return
    told = ", ".join(f"{name}={properties.get(name, '')[:80]!r}" for name in PROPERTIES)
    reason = None
    if repeat_of(properties) is None:
        reason = (
            f"the period is {limits.REPEAT_EVERY_MS_MIN} to {limits.REPEAT_EVERY_MS_MAX} ms, and "
            f"without a count it has no end; a count is 1 to {limits.REPEATS_MAX}"
        )
    elif not timed:
        reason = "only a message with a timer is repeated: neither with a level nor at once"
    elif body_bytes > limits.REPEATED_BODY_BYTES_MAX:
        reason = f"its body has {body_bytes} bytes, above {limits.REPEATED_BODY_BYTES_MAX}"
    elif len(str(properties)) > limits.REPEATED_PROPERTIES_MAX:
        reason = f"its properties are longer than {limits.REPEATED_PROPERTIES_MAX} characters"
    if reason is not None:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"a message with {told}: {reason}")


def again(properties: Mapping[str, str], now_ms: int) -> dict[str, str] | None:
    """What a timed message waits with once more, after it was delivered; None if that was the last.

    `properties` are those that it waited with.
    """
    repeat = repeat_of(properties)
    due_ms = _number(properties.get(names.TIMER_OUT_MS, ""), limits.TIME_MS_MAX)
    if repeat is None or due_ms is None or repeat.left == 1:
        return None
    next_ms = repeat.next_ms(due_ms, now_ms)
    expires_ms = _number(properties.get(names.EXPIRES_AT_MS, ""), limits.TIME_MS_MAX)
    if next_ms > limits.TIME_MS_MAX or (expires_ms is not None and next_ms >= expires_ms):
        return None
    left = {} if repeat.left is None else {names.REPEATS_LEFT: str(repeat.left - 1)}
    return {**properties, **left, names.TIMER_OUT_MS: str(next_ms)}


def delivered(properties: Mapping[str, str], unique_key: str) -> dict[str, str]:
    """What one of the copies is delivered with: a key of its own, and whose copy it is.

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
