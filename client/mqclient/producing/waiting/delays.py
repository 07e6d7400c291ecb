"""Messages with a delay, an end of their time or a priority, and the properties that say so. Pure.

RocketMQ has three ways, all of them properties of the message: one of the broker's levels, a time
to wait, a time of day. The broker keeps such a message and puts it into its queue when it is due.
"""

from __future__ import annotations

import math
from datetime import datetime

from dledger.errors import BadInput
from dledger.remoting.cron import next_ms, parse_cron, zone_named
from dledger.remoting.message import (
    DELAY,
    EXPIRES_AT_MS,
    PRIORITY,
    REPEAT_CRON,
    REPEAT_EVERY_MS,
    REPEAT_ZONE,
    REPEATS_LEFT,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
)
from dledger.remoting.numbers import INT32_MAX
from mqclient import limits
from mqclient.models import Message


def delay_properties(message: Message) -> dict[str, str]:
    """The properties that ask for a delay; empty for a message without one. Raises BadInput."""
    level, delay_s, at = message.delay_level, message.delay_s, message.deliver_at
    if bool(level) + bool(delay_s) + (at is not None) > 1:
        raise BadInput(
            f"delay_level={level}, delay_s={delay_s} and deliver_at={at}: set one of them at most"
        )
    if not 0 <= level <= limits.DELAY_LEVEL_MAX or level != int(level):
        raise BadInput(
            f"delay_level={level}: levels count from 1 (the broker's messageDelayLevel), and no "
            f"broker has more than {limits.DELAY_LEVEL_MAX}; for seconds there is delay_s"
        )
    if not 0 <= delay_s < math.inf:
        raise BadInput(f"delay_s={delay_s}: expected seconds from now")
    if message.repeat_s or message.repeat_cron or message.repeats is not None:
        return _repeat_properties(message)
    return _timer_properties(level, delay_s, at)


def _timer_properties(level: int, delay_s: float, at: datetime | None) -> dict[str, str]:
    if level:
        return {DELAY: str(level)}
    if delay_s:
        return {TIMER_DELAY_MS: str(math.ceil(delay_s * 1000))}
    if at is None:
        return {}
    if at.tzinfo is None:
        raise BadInput(f"deliver_at={at} has no time zone: give one, as in datetime.now(UTC)")
    return {TIMER_DELIVER_MS: str(math.ceil(at.timestamp() * 1000))}


def _repeat_properties(message: Message) -> dict[str, str]:
    """Properties of a message that comes again and again. Raises BadInput."""
    repeat_s, repeats = message.repeat_s, message.repeats
    if message.repeat_cron and repeat_s:
        raise BadInput(f"repeat_s={repeat_s} and repeat_cron={message.repeat_cron!r}: set one")
    if not message.repeat_cron and not limits.REPEAT_S_MIN <= repeat_s <= limits.RETRY_DELAY_S_MAX:
        raise BadInput(
            f"repeat_s={repeat_s}: expected seconds from one time to the next, "
            f"{limits.REPEAT_S_MIN} to {limits.RETRY_DELAY_S_MAX}"
        )
    if repeats is not None and not 1 <= repeats <= limits.REPEATS_MAX:
        raise BadInput(f"repeats={repeats}: expected 1 to {limits.REPEATS_MAX}, or None for no end")
    if message.delay_level:
        raise BadInput(
            "repeat_s or repeat_cron with delay_level: use delay_s or deliver_at for the first time"
        )
    at = message.deliver_at
    delay_s = message.delay_s or (repeat_s if at is None else 0.0)
    count = {} if repeats is None else {REPEATS_LEFT: str(repeats)}
    timer = _timer_properties(0, delay_s, at)
    if not message.repeat_cron:
        return {**timer, REPEAT_EVERY_MS: str(math.ceil(repeat_s * 1000)), **count}
    parse_cron(message.repeat_cron)
    zone_named(message.repeat_zone)
    zone = {} if message.repeat_zone == "UTC" else {REPEAT_ZONE: message.repeat_zone}
    return {**timer, REPEAT_CRON: message.repeat_cron, **zone, **count}


def expiry_properties(message: Message, now_ms: int) -> dict[str, str]:
    """The property that says when the message expires. Raises BadInput."""
    ttl_s = message.ttl_s
    if not 0 < ttl_s <= limits.TTL_S_MAX:
        raise BadInput(f"ttl_s={ttl_s}: expected seconds from now, {limits.TTL_S_MAX} at most")
    at = message.deliver_at
    first_s = message.delay_s or message.repeat_s
    due_ms: float | None = now_ms + first_s * 1000 if at is None else at.timestamp() * 1000
    if message.repeat_cron and due_ms is not None:
        zone = zone_named(message.repeat_zone)
        due_ms = next_ms(parse_cron(message.repeat_cron), zone, int(due_ms) - 1)
    expires_ms = now_ms + math.ceil(ttl_s * 1000)
    if message.delayed and (due_ms is None or due_ms >= expires_ms):
        raise BadInput(
            f"ttl_s={ttl_s} is over before the message is delivered: it counts from the send on"
        )
    return {EXPIRES_AT_MS: str(expires_ms)}


def priority_properties(message: Message, half_of: str) -> dict[str, str]:
    """The property that says a message's priority. Raises BadInput."""
    priority = message.priority
    if type(priority) is not int or not 0 <= priority <= INT32_MAX:
        raise BadInput(f"priority={priority!r}: expected a whole number from 0 on")
    if message.delayed or half_of or SHARDING_KEY in (message.properties or {}):
        raise BadInput(
            f"priority={priority}: a delayed, transactional or ordered message can't have one"
        )
    return {PRIORITY: str(priority)}
