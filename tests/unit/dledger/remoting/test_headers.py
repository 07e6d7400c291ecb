"""Typed headers read any spelling of a value, write exact names, and name wrong fields."""

from __future__ import annotations

import inspect

import msgspec
import pytest

from dledger.errors import HeaderError
from dledger.remoting import headers
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import (
    Header,
    ProduceHeader,
    PullMessageHeader,
    RegisterBrokerHeader,
    SendMessageResponseHeader,
    SendMessageV2Header,
    UpdateAndCreateTopicHeader,
    decode_header,
    encode_header,
)

PULL: dict[str, ExtValue] = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": "3",
    "queueOffset": "7",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "1700000000000",
}


def test_strings_become_what_the_fields_are() -> None:
    """A stock Java client writes strings only; what the type does not know is ignored."""
    header = decode_header(PullMessageHeader, Command(11, {**PULL, "bname": "broker-a"}))
    assert header == PullMessageHeader("G", "T", 3, 7, 32, 2, 0, 15_000, 1_700_000_000_000)


def test_numbers_and_booleans_become_what_the_fields_are() -> None:
    """The C++ and Node clients write numbers and booleans, even where text belongs."""
    ext: dict[str, ExtValue] = {
        "topic": 2024,
        "defaultTopic": "TBW102",
        "readQueueNums": 8,
        "writeQueueNums": 8.0,
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": True,
        "attributes": None,
    }
    header = decode_header(UpdateAndCreateTopicHeader, Command(17, ext))
    assert header == UpdateAndCreateTopicHeader("2024", "TBW102", 8, 8, 6, "SINGLE_TAG", order=True)


@pytest.mark.parametrize("written", ["true", "false", "TRUE", True, False])
def test_booleans_are_read_in_every_spelling(written: ExtValue) -> None:
    """Booleans are read in every spelling; Java writes `true`."""
    ext: dict[str, ExtValue] = {
        "brokerName": "b",
        "brokerAddr": "a",
        "clusterName": "c",
        "haServerAddr": "h",
        "brokerId": 0,
        "compressed": written,
    }
    header = decode_header(RegisterBrokerHeader, Command(103, ext))
    assert header.compressed is (str(written).lower() == "true")


def test_a_missing_field_is_named() -> None:
    """The operator sees at once what the client left out."""
    ext = {name: value for name, value in PULL.items() if name != "queueOffset"}
    with pytest.raises(
        HeaderError, match="PullMessageHeader lacks the required field 'queueOffset'"
    ):
        decode_header(PullMessageHeader, Command(11, ext))


@pytest.mark.parametrize("bad", ["seven", "", "7.5", 7.5, True, [7]])
def test_a_bad_value_is_named_with_its_field(bad: ExtValue) -> None:
    """A wrong value is an error with the field and the value."""
    with pytest.raises(HeaderError, match="'queueOffset' is ") as caught:
        decode_header(PullMessageHeader, Command(11, {**PULL, "queueOffset": bad}))
    assert repr(bad) in str(caught.value)


def test_a_huge_bad_value_is_shown_in_part() -> None:
    """An error's text goes back to the client and into the log: it is bounded."""
    with pytest.raises(HeaderError) as caught:
        decode_header(PullMessageHeader, Command(11, {**PULL, "queueOffset": "x" * 100_000}))
    assert len(str(caught.value)) < 300


def test_the_letters_of_v2_are_the_names_of_v1_in_order() -> None:
    """The letters of V2 are the names of V1 in order: a is producerGroup ... n is brokerName."""
    ext: dict[str, ExtValue] = {
        "a": "PG",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "769",
        "g": "1700000000000",
        "h": "0",
        "i": "TAGS\x01x\x02",
        "j": "1",
        "k": "false",
        "l": "16",
        "m": "true",
        "n": "broker-a",
    }
    header = decode_header(SendMessageV2Header, Command(310, ext)).to_v1()
    assert encode_header(header) == {
        "producerGroup": "PG",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 1,
        "sysFlag": 769,
        "bornTimestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": "TAGS\x01x\x02",
        "reconsumeTimes": 1,
        "unitMode": False,
        "maxReconsumeTimes": 16,
        "batch": True,
        "brokerName": "broker-a",
    }


def test_none_is_left_out_and_nothing_else() -> None:
    """A field that is None is left out; zero, false and the empty text are values."""
    assert encode_header(SendMessageResponseHeader("", 0, 0)) == {
        "msgId": "",
        "queueId": 0,
        "queueOffset": 0,
    }


def test_a_produce_header_carries_its_runs() -> None:
    """A produce header has its runs as lists of pairs."""
    header = ProduceHeader("T", "PG", [(0, 10), (3, 2)])
    ext = encode_header(header)
    assert decode_header(ProduceHeader, Command(9001, {**ext, "runs": [[0, 10], [3, 2]]})) == header


def all_header_types() -> list[type[Header]]:
    return [
        value
        for value in vars(headers).values()
        if inspect.isclass(value) and issubclass(value, Header) and value is not Header
    ]


@pytest.mark.parametrize("header_type", all_header_types())
def test_every_header_is_named_after_a_code(header_type: type[Header]) -> None:
    """A header is named after its code, so that a reader finds one by the other."""
    name = header_type.__name__.removesuffix("Header").removesuffix("Response")
    upper = "".join(f"_{c}" if c.isupper() else c.upper() for c in name).removeprefix("_")
    known = {code.name.replace("_", "") for code in RequestCode}
    assert upper.replace("_", "") in known


@pytest.mark.parametrize("header_type", all_header_types())
def test_every_optional_field_defaults_to_nothing(header_type: type[Header]) -> None:
    """Encoding leaves out defaults, so one that says something would be lost on the wire."""
    for field in msgspec.structs.fields(header_type):
        assert field.required or field.default in (None, ()), field.name


@pytest.mark.parametrize("header_type", all_header_types())
def test_every_header_survives_the_trip_as_strings(header_type: type[Header]) -> None:
    """A header written as strings is read back the same."""
    samples = {str: "text", int: 7, bool: True}
    values = {}
    for field in msgspec.structs.fields(header_type):
        # An integer has its width beside it: Annotated[int, ...], perhaps within a union.
        kinds = [
            getattr(kind, "__origin__", kind)
            for kind in getattr(field.type, "__args__", (field.type,))
        ]
        values[field.name] = next((samples[kind] for kind in kinds if kind in samples), None)
    if header_type.__name__ == "GroupInfoResponseHeader":
        values |= {"role": "leader", "members": [("n0", "127.0.0.1:10911")], "learners": ("n0",)}
        values |= {"set_aside_last": ((7, "why"),), "unreached": (("n8", "why"),)}
    if header_type.__name__.startswith(("Produce", "Stage", "WriteOnce")):
        values |= {"runs": [(0, 1)], "offsets": [(0, 5)]}
        values |= {"parts": [("T", 9, [(0, 1)])], "moves": [("T", 0, 1, 2, None)]}
        values = {name: values[name] for name in header_type.__struct_fields__}
    header = header_type(**values)
    written = {
        name: str(value).lower() if isinstance(value, bool | int) else value
        for name, value in encode_header(header).items()
    }
    assert decode_header(header_type, Command(0, written)) == header
