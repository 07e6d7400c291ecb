"""Attributes of topics and groups: RocketMQ 5's named settings, and how they are altered. Pure.

Names, values and rules are the reference's (TopicAttributes, AttributeUtil), but for the rates,
which are ours (`dledger.remoting.attributes`). The leader computes the new attributes, and the log
holds the result. Some values are refused, since this broker could not obey them: it compacts no
topic, its retention is the same for all topics, and it has no lite topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from dledger.limits import RATE_PER_S_MAX
from dledger.remoting import attributes as names
from dledger.remoting.message import DELAYS, ORIGIN_MESSAGE_ID, PRIORITY, SHARDING_KEY, TRAN_MSG
from mqbroker.refusal import Refused, illegal_message, system_error

MESSAGE_TYPE: Final = "message.type"
#: Topics of these types take every message, as those without a type do.
_OPEN: Final = frozenset({"UNSPECIFIED", "MIXED"})


class _Attribute(NamedTuple):
    """An attribute's possible values, those that this broker obeys, and whether it may change
    later."""

    values: tuple[str, ...]
    obeyed: tuple[str, ...]
    changeable: bool
    numbers: range | None = None


_RATE: Final = _Attribute((), (), True, range(1, RATE_PER_S_MAX + 1))
_OBEYED: Final = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")
_TYPES: Final = (*_OBEYED, "LITE")
Known: TypeAlias = Mapping[str, _Attribute]
TOPIC_ATTRIBUTES: Final[Known] = {
    MESSAGE_TYPE: _Attribute(_TYPES, _OBEYED, True),
    "queue.type": _Attribute(("SimpleCQ", "BatchCQ"), ("SimpleCQ", "BatchCQ"), False),
    "cleanup.policy": _Attribute(("DELETE", "COMPACTION"), ("DELETE",), False),
    "reserve.time": _Attribute((), ("-1",), True),
    names.SEND_MESSAGES: _RATE,
    names.SEND_BYTES: _RATE,
}
GROUP_ATTRIBUTES: Final[Known] = {
    names.CONSUME_MESSAGES: _RATE,
    names.CONSUME_BYTES: _RATE,
    names.PRIORITY_FACTOR: _Attribute((), (), True, range(names.ALWAYS + 1)),
}


def alter(
    current: Mapping[str, str] | None,
    altered: Mapping[str, str],
    known: Known = TOPIC_ATTRIBUTES,
) -> dict[str, str]:
    """The attributes of a topic or group after an alteration; `current` is None for a new one.

    Refused, naming the attribute, if one is not known, may not change, or can't be obeyed.
    """
    outcome = dict(current or {})
    seen: set[str] = set()
    for signed, value in altered.items():
        sign, name = signed[:1], signed[1:]
        if sign not in ("+", "-") or name in seen:
            raise _refused(f"{signed!r} is not +name or -name, or comes twice")
        seen.add(name)
        if sign == "-" and name not in outcome:
            raise _refused(f"{name!r} is not set, so it can't be removed")
        attribute = known.get(name)
        if attribute is None:
            raise _refused(f"{name!r} is not known; there are {', '.join(known)}")
        if current is not None and not attribute.changeable:
            raise _refused(f"{name!r} can't be changed: it is set when the topic is made")
        if sign == "-":
            del outcome[name]
            continue
        _check_value(name, attribute, value)
        outcome[name] = value
    return outcome


def check_type(topic: str, wanted: str | None, properties: Mapping[str, str]) -> None:
    """Refuse a message that is not of its topic's type. A dead letter that is sent again was of it
    when it was sent first: its delay or its transaction is over."""
    if ORIGIN_MESSAGE_ID in properties:
        return
    kind = message_type(properties)
    if wanted is not None and wanted not in _OPEN and wanted != kind:
        raise illegal_message(f"a {kind} message to {topic!r}, whose {MESSAGE_TYPE} is {wanted}")


def check_records_type(topic: str, attributes: Mapping[str, str]) -> None:
    """Refuse finished records, which can't have a delay, to a topic for delayed messages."""
    wanted = attributes.get(MESSAGE_TYPE)
    if wanted in ("DELAY", "TRANSACTION"):
        check_type(topic, wanted, {})


def message_type(properties: Mapping[str, str]) -> str:
    """The type of a message by its properties, in the reference's order (TopicMessageType)."""
    if properties.get(TRAN_MSG, "").lower() == "true":
        return "TRANSACTION"
    if any(name in properties for name in DELAYS):
        return "DELAY"
    if SHARDING_KEY in properties:
        return "FIFO"
    return "PRIORITY" if PRIORITY in properties else "NORMAL"


def _check_value(name: str, attribute: _Attribute, value: str) -> None:
    if attribute.numbers is not None:
        number = names.parse_number(value)
        if number is None or number not in attribute.numbers:
            raise _refused(
                f"{name!r} is a whole number from {attribute.numbers[0]} to "
                f"{attribute.numbers[-1]}, not {value[:80]!r}; -{name} takes it away"
            )
        return
    if attribute.values and value not in attribute.values:
        raise _refused(f"{name!r} is one of {', '.join(attribute.values)}, not {value!r}")
    if value not in attribute.obeyed:
        raise _refused(
            f"{name!r} {value!r} is not supported here: only {', '.join(attribute.obeyed)}"
        )


def _refused(reason: str) -> Refused:
    return system_error(f"attributes: {reason}")
