"""Keys and properties are stored as they were given, or refused at the call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting import message as names
from dledger.remoting.message import keys_of, properties_decode
from dledger.remoting.record import Record
from mqbroker.state.derived.properties import UNIQUE_NAME, value_in
from mqbroker.state.derived.properties import keys_of as keys_in
from mqclient.connection.identity import UniqueKeys
from mqclient.errors import BadMessage
from mqclient.models import Message
from mqclient.producing.encoding import Encoder
from mqclient.user_properties import OwnProperties

ODD = "\x00\t\n\x0b\x0c\r\x1c \x85\xa0\u2028\u2029\u3000\ufeff\ud800|=*\x01\x02"
TEXTS = st.text(st.sampled_from("ab" + ODD) | st.characters(), max_size=6)
CONSTANTS = [text for name, text in vars(names).items() if name.isupper() and type(text) is str]
#: Names without a meaning to brokers and consumers, though there are constants for them.
FREE = {
    *(names.SHARDING_KEY, names.CHECK_IMMUNITY_TIME),
    *(names.DEFAULT_TOPIC, names.RETRY_PREFIX, names.DLQ_PREFIX, names.PARTS_PREFIX),
    names.REPLY_SUFFIX,
    *(names.MIN_OFFSET, names.MAX_OFFSET),
}


def encoder() -> Encoder:
    return Encoder(UniqueKeys("127.0.0.1"), "127.0.0.1")


def has(texts: list[str], *characters: str) -> bool:
    return any(first <= c <= last for text in texts for c in text for first, last in characters)


@given(
    properties=st.dictionaries(TEXTS | st.sampled_from(CONSTANTS), TEXTS, max_size=4),
    keys=TEXTS | st.lists(TEXTS, max_size=4),
    tags=TEXTS,
)
def test_what_is_taken_is_stored_and_found_as_it_was_given(
    properties: dict[str, str], keys: str | list[str], tags: str
) -> None:
    """Both encoders, and the broker's index, which splits bytes, agree on keys and properties."""
    message = Message("T", b"x", keys=keys, tags=tags, properties=properties)
    wanted = keys.split(" ") if isinstance(keys, str) else keys
    given_ = [*properties, *properties.values()]
    refused = (
        has([*given_, *wanted, tags], ("\ud800", "\udfff"), ("\x01", "\x02"))
        or "" in given_
        or not FREE.issuperset(properties.keys() & set(CONSTANTS))
        or (not isinstance(keys, str) and any(not key or " " in key for key in keys))
    )
    try:
        unique_key, record = encoder().encode(message, 0)
        many = encoder().encode_many(replace(message, body=b""), 0, [b"x"])
    except BadMessage:
        assert refused
        return
    assert not refused
    assert properties_decode(Record(record).properties)["UNIQ_KEY"] == unique_key
    for encoded in (record, many.records):
        told = bytes(Record(encoded).properties)
        stored = properties_decode(told)
        assert {name: stored[name] for name in properties} == properties
        assert stored.get("TAGS", "") == tags
        expected = list(dict.fromkeys(key for key in wanted if key))
        assert list(dict.fromkeys(keys_of(stored))) == expected
        found = [key.key.decode() for key in keys_in(b"T", value_in(told, UNIQUE_NAME), told, 0)]
        assert found[1:] == expected


@pytest.mark.parametrize("name", sorted({*CONSTANTS} & names.ADDED - FREE))
def test_a_name_with_a_meaning_is_no_users(name: str) -> None:
    """Brokers and consumers would act upon it, or replace it."""
    with pytest.raises(BadMessage, match=name):
        encoder().encode(Message("T", b"", properties={name: "0"}), 0)


@pytest.mark.parametrize("value", [5, 1.5, None, b"x", True])
def test_what_is_not_text_is_refused(value: object) -> None:
    """A value that is not text is refused, and never stored as its repr."""
    odd = [{"properties": {"a": value}}, {"properties": {value: "a"}}, {"keys": [value]}]
    odd += [{"tags": value}, {"unique_key": value}] * (value is not None)
    for fields in odd:
        with pytest.raises(BadMessage, match="text"):
            encoder().encode(Message("T", b"", **fields), 0)  # type: ignore[arg-type]


def test_more_keys_than_are_indexed_are_refused() -> None:
    """The first 32 would be found, the others not."""
    for keys in ([f"k{number}" for number in range(33)], " ".join(map(str, range(33)))):
        with pytest.raises(BadMessage, match="33 keys"):
            encoder().encode(Message("T", b"", keys=keys), 0)
    encoder().encode(Message("T", b"", keys=" ".join("a" * 99)), 0)


def test_ours_are_told_from_a_users() -> None:
    """A name that we set ourselves is refused if the user has set it, too."""
    own = OwnProperties.of({"a": "b"}, {names.LARGE_BODY: "m"})
    _, record = encoder().encode(Message("T", b"", properties=own), 0, order_key="k")
    stored = properties_decode(Record(record).properties)
    assert (stored["a"], stored[names.LARGE_BODY], stored[names.SHARDING_KEY]) == ("b", "m", "k")
    with pytest.raises(BadInput, match="send_large"):
        OwnProperties.of({names.LARGE_BODY: "x"}, {names.LARGE_BODY: "m"})


@given(st.dictionaries(st.text("ab\x01\x02", max_size=4), st.text("ab\x01\x02", max_size=4)))
def test_properties_of_other_senders_are_copied_or_refused(properties: dict[str, str]) -> None:
    """A value with 0x01 in it is read as it was written: a retry of such a message can be made."""
    try:
        encoded = names.properties_encode(properties)
    except BadInput:
        every = [*properties, *properties.values()]
        assert "" in properties or has(every, ("\x02", "\x02")) or has([*properties], ("\x01",) * 2)
        return
    kept = {name: value for name, value in properties.items() if value}
    assert properties_decode(encoded) == kept
    assert properties_decode(names.properties_encode(kept)) == kept
