"""Keys and properties of a sender's own, and which of them a message can keep. Pure.

RocketMQ writes properties as NAME 0x01 value 0x02, and reads none without a value; keys stand in
one property with a blank (0x20) between them. What can't be kept so, or would be taken for
something else by brokers and consumers, is refused before it is sent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from dledger.errors import BadInput
from dledger.limits import KEYS_PER_MESSAGE_MAX
from dledger.remoting import message as names

_BROKERS_OWN: Final = (
    *(names.REAL_TOPIC, names.REAL_QID, names.RETRY_TOPIC, names.ORIGIN_MESSAGE_ID),
    *(names.RECONSUME_TIME, names.PGROUP, names.POP_CK, names.WAIT),
    *(names.CLUSTER, names.MSG_REGION, names.TRACE_ON, names.TIMER_OUT_MS),
    *(names.DLQ_ORIGIN_TOPIC, names.MAX_RECONSUME_TIMES, names.LEFT_OUT, names.STAGED),
)
_LARGE: Final = (names.LARGE_BODY, names.LARGE_PART)
_REPLIES: Final = (
    *(names.MSG_TYPE, names.CORRELATION_ID, names.REPLY_TO_CLIENT, names.TTL),
    names.PUSH_REPLY_TIME,
)
_INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(names.DELAYS, "set the message's delay_level, delay_s or deliver_at"),
    names.EXPIRES_AT_MS: "set the message's ttl_s",
    names.PRIORITY: "set the message's priority",
    names.REPEAT_EVERY_MS: "set the message's repeat_s and repeats",
    names.REPEATS_LEFT: "set the message's repeat_s and repeats",
    names.REPEAT_CRON: "set the message's repeat_cron and repeat_zone",
    names.REPEAT_ZONE: "set the message's repeat_cron and repeat_zone",
    names.REPEAT_OF: "brokers give it to the copies of a message that is repeated",
    names.TRAN_MSG: "send it by Producer.transaction",
    names.KEYS: "set the message's keys",
    names.TAGS: "set the message's tags",
    names.UNIQ_KEY: "set the message's unique_key, or leave it to the producer",
    **dict.fromkeys(_LARGE, "send large bodies by Producer.send_large"),
    **dict.fromkeys(_REPLIES, "ask by Producer.request, and answer by Producer.reply"),
    **dict.fromkeys(
        _BROKERS_OWN, "brokers act upon it or replace it; choose another name for your own"
    ),
}


class OwnProperties(dict[str, str]):
    """A message's properties, some of which (`own`) this client has set, and no user."""

    def __init__(self, properties: Mapping[str, str], own: Collection[str]) -> None:
        super().__init__(properties)
        self.own = frozenset(own)

    @classmethod
    def of(cls, properties: Mapping[str, str] | None, own: Mapping[str, str]) -> OwnProperties:
        """A user's properties with ours. Raises BadInput for a property that is not a user's."""
        check_properties(properties or {})
        return cls({**(properties or {}), **own}, own)


def with_property(properties: Mapping[str, str], name: str, value: str) -> dict[str, str]:
    """The properties with one more, whoever has set them."""
    both = {**properties, name: value}
    return OwnProperties(both, properties.own) if isinstance(properties, OwnProperties) else both


def check_properties(properties: Mapping[str, str]) -> None:
    """Raise BadInput for a property that can't be kept as it is, or has its own field or call."""
    own = properties.own if isinstance(properties, OwnProperties) else frozenset()
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadInput(
                f"the property {name!r:.100}={value!r:.100}: names and values of properties are "
                "texts"
            )
        if not value:
            raise BadInput(
                f"the property {name!r:.100} has an empty value; RocketMQ keeps none: leave it out"
            )
        if name in _INSTEAD and name not in own:
            raise BadInput(
                f"the property {name}={value!r:.100} is not sent as it is: {_INSTEAD[name]}"
            )


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The properties as they are written. Raises BadInput for what can't be."""
    encoded = names.properties_encode(properties)
    if encoded.count(1) != len(properties):
        raise BadInput("a key, a tag or a property's value holds \\x01, which ends a name")
    return encoded


def keys_text(keys: str | Sequence[str]) -> str:
    """The keys as they are stored. Raises BadInput."""
    if isinstance(keys, str):
        several: Sequence[str] = [key for key in keys.split(" ") if key]
    else:
        several = _texts(keys)
    if len(set(several)) > KEYS_PER_MESSAGE_MAX:
        raise BadInput(
            f"{len(set(several))} keys; brokers find a message by {KEYS_PER_MESSAGE_MAX} at most"
        )
    return keys if isinstance(keys, str) else " ".join(several)


def _texts(keys: Sequence[str]) -> Sequence[str]:
    if not isinstance(keys, Sequence):
        raise BadInput(f"keys={keys!r:.100}: expected text, or a list of texts")
    for key in keys:
        if not isinstance(key, str) or not key or " " in key:
            raise BadInput(
                f"keys={keys!r:.100}: {key!r:.100} can't be one of several keys, which are texts "
                "without a blank"
            )
    return keys
