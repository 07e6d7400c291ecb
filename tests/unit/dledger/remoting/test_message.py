"""Properties, tags, ids, and the body of a batch, encoded and decoded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.limits import PROPERTIES_BYTES_MAX
from dledger.remoting.message import (
    BatchItem,
    batch_decode,
    batch_encode,
    host_bytes,
    host_decode,
    offset_message_id,
    offset_message_id_decode,
    properties_decode,
    properties_encode,
    tags_code,
)

words = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1
)


@given(st.dictionaries(words, words))
def test_decoding_properties_undoes_encoding(properties: dict[str, str]) -> None:
    """Properties with any names and values, but for the two separators, come back."""
    assert properties_decode(properties_encode(properties)) == properties


def test_properties_are_written_as_rocketmq_writes_them() -> None:
    """Properties are written as name, 0x01, value, 0x02."""
    assert (
        properties_encode({"KEYS": "k1 k2", "TAGS": "é"})
        == b"KEYS\x01k1 k2\x02TAGS\x01\xc3\xa9\x02"
    )


@pytest.mark.parametrize(
    ("written", "properties"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),  # 4.9 clients omit the last separator.
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"junk\x02a\x01b\x02empty\x01\x02\x02", {"a": "b"}),
    ],
)
def test_properties_are_read_as_leniently_as_the_reference_does(
    written: bytes, properties: dict[str, str]
) -> None:
    """Pieces without a name or value are ignored, the last of two equal names wins."""
    assert properties_decode(written) == properties
    assert properties_decode(memoryview(written)) == properties


@pytest.mark.parametrize("bad", [{"a\x01": "b"}, {"a": "b\x02"}, {"": "b"}, {"a": "\ud800"}])
def test_properties_that_would_not_come_back_are_refused(bad: dict[str, str]) -> None:
    """Properties with separators inside, no name, or no UTF-8 are refused."""
    with pytest.raises(BadInput, match="propert"):
        properties_encode(bad)


def test_properties_above_the_bound_are_refused() -> None:
    """A record holds their length in signed 16 bits."""
    with pytest.raises(BadInput, match=str(PROPERTIES_BYTES_MAX)):
        properties_encode({"a": "x" * PROPERTIES_BYTES_MAX})


def test_properties_that_are_no_utf8_are_refused() -> None:
    """Properties that are not UTF-8 raise the error that their sender gets."""
    with pytest.raises(BadInput, match="UTF-8"):
        properties_decode(b"a\x01\xff\x02")


@pytest.mark.parametrize(
    ("tag", "code"),
    [("", 0), ("TagA", 2598919), ("a", 97), ("polygenelubricants", -(2**31)), ("é😀", 1996812)],
)
def test_a_tags_code_is_javas_string_hash(tag: str, code: int) -> None:
    """A tag's code is Java's hash over UTF-16 units, wrapping at 32 bits ("TagA" is captured)."""
    assert tags_code(tag) == code


def test_an_offset_message_id_is_the_one_of_the_capture() -> None:
    """The id of 127.0.0.1:10911, offset 0xF97, is the captured one."""
    message_id = offset_message_id(host_bytes("127.0.0.1", 10911), 0xF97)
    assert message_id == "7F00000100002A9F0000000000000F97"
    assert offset_message_id_decode(message_id) == ("127.0.0.1", 10911, 0xF97)


def test_hosts_and_ids_hold_ipv6_as_well() -> None:
    """IPv6 addresses take 20 bytes in a host, and 56 characters in an id."""
    host = host_bytes("2001:db8::1", 10911)
    assert len(host) == 20
    assert host_decode(host) == ("2001:db8::1", 10911)
    message_id = offset_message_id(host, 5)
    assert len(message_id) == 56
    assert offset_message_id_decode(message_id) == ("2001:db8::1", 10911, 5)


@pytest.mark.parametrize("bad", ["", "7F", "zz" * 16, "7F00000100002A9F0000000000000F9"])
def test_what_is_no_offset_message_id_is_refused(bad: str) -> None:
    """A wrong offset message id, as from a command line, is refused."""
    with pytest.raises(BadInput, match="offset message id"):
        offset_message_id_decode(bad)


def test_a_host_that_is_no_address_is_refused() -> None:
    """Records hold addresses, not names."""
    with pytest.raises(BadInput, match="localhost"):
        host_bytes("localhost", 1)


def test_a_batch_is_written_as_stock_clients_write_it() -> None:
    """A batch item is its size, magic 0, CRC 0, flag, body and properties with their lengths."""
    assert batch_encode([BatchItem(b"hi", b"a\x01b\x02", 7)]) == bytes.fromhex(
        "0000001c 00000000 00000000 00000007 00000002 6869 0004 61016202"
    )


items = st.builds(BatchItem, st.binary(max_size=50), st.binary(max_size=50), st.integers(0, 99))


@given(st.lists(items, max_size=6))
def test_decoding_a_batch_undoes_encoding(batch: list[BatchItem]) -> None:
    """A decoded batch has its bodies as views."""
    assert list(batch_decode(batch_encode(batch))) == batch


@given(st.lists(items, min_size=1, max_size=3), st.data())
def test_a_damaged_batch_is_refused_or_read_but_never_crashes(
    batch: list[BatchItem], data: st.DataObject
) -> None:
    """A batch with a replaced byte, or without its end, is read or refused."""
    written = bytearray(batch_encode(batch))
    written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    del written[data.draw(st.integers(1, len(written))) :]
    try:
        list(batch_decode(written))
    except BadInput as error:
        assert "batch item" in str(error)  # noqa: PT017 -- either outcome is right
