"""Attributes of topics and groups: how they are altered, and the rates among them. Pure.

RocketMQ 5's named settings are altered by names with a sign: `+message.type=DELAY,-reserve.time`
sets one and removes another. Rates are attributes of ours: what may be sent to a topic, and what a
group may be given, in messages and in bytes, per second and broker group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from dledger.errors import BadInput
from dledger.limits import RATE_DIGITS_MAX, RATE_PER_S_MAX

SEND_MESSAGES: Final = "send.rate.messages"
SEND_BYTES: Final = "send.rate.bytes"
CONSUME_MESSAGES: Final = "consume.rate.messages"
CONSUME_BYTES: Final = "consume.rate.bytes"
PRIORITY_FACTOR: Final = "priority.factor"
"""How many of a hundred pops of a group go by priority."""
ALWAYS: Final = 100


def parse_alteration(text: str | None) -> dict[str, str]:
    """`+name=value,-name` as a map with signed names. BadInput if it is not of that form."""
    altered: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        name, equals, value = part.partition("=")
        signed = name.startswith("+") if equals else name.startswith("-")
        if not signed or name in altered:
            raise BadInput(
                f"attributes: {part!r} is not of the form +name=value or -name, or comes twice"
            )
        altered[name] = value
    return altered


class Rate(NamedTuple):
    """Messages and bytes that may pass in a second; None for no limit."""

    messages_per_s: int | None
    bytes_per_s: int | None


def send_rate(attributes: Mapping[str, str]) -> Rate | None:
    """The rate of sends to a topic, by its attributes; None if it has no rate."""
    return _rate(attributes, SEND_MESSAGES, SEND_BYTES)


def consume_rate(attributes: Mapping[str, str]) -> Rate | None:
    """The rate at which a group is given messages, by its attributes; None if it has no rate."""
    return _rate(attributes, CONSUME_MESSAGES, CONSUME_BYTES)


def parse_rate(value: str) -> int | None:
    """An attribute's value; None if it is no rate."""
    rate = parse_number(value)
    return rate if rate is not None and 0 < rate <= RATE_PER_S_MAX else None


def priority_factor(attributes: Mapping[str, str]) -> int:
    """How many of a hundred pops of a group go by priority, by its attributes."""
    factor = parse_number(attributes.get(PRIORITY_FACTOR, ""))
    return ALWAYS if factor is None else min(factor, ALWAYS)


def parse_number(value: str) -> int | None:
    """An attribute's value; None if it is no whole number, or has too many digits."""
    if not value.isascii() or not value.isdigit() or len(value) > RATE_DIGITS_MAX:
        return None
    return int(value)


def _rate(attributes: Mapping[str, str], messages: str, size: str) -> Rate | None:
    rate = Rate(parse_rate(attributes.get(messages, "")), parse_rate(attributes.get(size, "")))
    return None if rate == (None, None) else rate
