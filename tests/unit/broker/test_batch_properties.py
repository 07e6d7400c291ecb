"""Properties with which the messages of a stock client's batch are stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting import message as names
from mqbroker.refusal import Refused
from mqbroker.requests.sending import batch_properties as module
from mqbroker.requests.sending.batch_properties import NOT_KEPT, batch_properties

ADDED = b"CLUSTER\x01c\x02MSG_REGION\x01r\x02"

USUAL = ("UNIQ_KEY", "WAIT", "TAGS", "KEYS", "XUNIQ_KEY", "UNIQ_KEYS", "k\u00e4se")
NAMES = st.sampled_from(
    (*USUAL, *NOT_KEPT, "DELAY", "XDELAY", "DELAYS", "TRAN_MSG", "TIMER_OUT_MS")
)
VALUES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=4)
PIECES = st.one_of(
    st.tuples(NAMES, VALUES).map("\x01".join), VALUES, st.just("a\x01b\x01c"), st.just("\x01v")
)
OWN = st.lists(PIECES, max_size=4).map("\x02".join)
STOCK = st.tuples(
    st.sampled_from(("UNIQ_KEY\x01A", "UNIQ_KEY\x01B", "TAGS\x01t\x02UNIQ_KEY\x01C", "TAGS\x01t")),
    st.sampled_from(("\x02WAIT\x01true\x02", "\x02", "")),
).map("".join)


def taken_apart(common: dict[str, str], own: list[bytes]) -> list[dict[str, str]] | str:
    """The expected properties of each message, by decoding all of them; or "refused"."""
    found = []
    for each in own:
        properties = common | names.properties_decode(each)
        if {*names.DELAYS, names.TRAN_MSG} & {*properties}:
            return "refused"
        for name in NOT_KEPT:
            properties.pop(name, None)
        if "" in properties:
            return "refused"
        found.append(properties | names.properties_decode(ADDED))
    return found


@given(
    common=st.dictionaries(NAMES, VALUES.filter(bool), max_size=2),
    own=st.lists(st.one_of(STOCK, STOCK, OWN).map(str.encode), max_size=5),
)
def test_messages_have_their_own_properties_and_the_batchs(
    common: dict[str, str], own: list[bytes]
) -> None:
    """Messages have their own properties, the batch's, and each a unique key."""
    without_key = {name: value for name, value in common.items() if name != "UNIQ_KEY"}
    expected = taken_apart(without_key, own)
    try:
        stored, first_key = batch_properties(common, own, ADDED)
    except Refused:
        assert expected == "refused"
        return

    found = [names.properties_decode(each) for each in stored]
    assert expected != "refused"
    assert [each | {"UNIQ_KEY": ""} for each in found] == [
        each | {"UNIQ_KEY": ""} for each in expected if isinstance(each, dict)
    ]
    for each, asked in zip(found, expected, strict=True):
        assert each["UNIQ_KEY"]
        assert isinstance(asked, str) or asked.get("UNIQ_KEY") in (None, each["UNIQ_KEY"])
    assert first_key == (found[0]["UNIQ_KEY"] if found else "")


def test_what_stock_clients_send_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of stock clients stay as they are: the path for odd ones is five times as dear."""
    monkeypatch.setattr(module, "_taken_apart", pytest.fail)
    own = [b"UNIQ_KEY\x01%d\x02WAIT\x01true\x02" % number for number in range(3)]
    own.append(b"TAGS\x01t\x02UNIQ_KEY\x013")
    stored, first_key = batch_properties({"WAIT": "false", "UNIQ_KEY": "batch"}, own, ADDED)
    assert stored[:3] == [each + ADDED for each in own[:3]]
    assert stored[3] == b"WAIT\x01false\x02TAGS\x01t\x02UNIQ_KEY\x013\x02" + ADDED
    assert first_key == "0"


@pytest.mark.parametrize("half", [b"\xc3", b"TAGS\x01\xc3\x02"])
def test_what_is_no_utf_8_is_refused(half: bytes) -> None:
    """Properties that are not UTF-8 are refused, also if two messages' together would be."""
    with pytest.raises(BadInput, match="not UTF-8"):
        batch_properties({}, [half, b"\xa4\x01v\x02"], ADDED)


def test_no_unique_key_is_made_twice() -> None:
    """Messages without a unique key get one each."""
    stored, first_key = batch_properties({}, [b"TAGS\x01t\x02"] * 50, ADDED)
    keys = [names.properties_decode(each)["UNIQ_KEY"] for each in stored]
    assert len({*keys}) == 50
    assert keys[0] == first_key
