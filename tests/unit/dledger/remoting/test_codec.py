"""Frames: golden bytes worked out by hand from the protocol's layout, round trips, and garbage."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import FrameError
from dledger.limits import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from dledger.remoting.codec import decode_frame, encode_frame
from dledger.remoting.command import Command, HeaderEncoding, Language

JSON_HEADER = (
    b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":3,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)
ROCKETMQ_HEADER = bytes.fromhex(
    "0069 00 0199 00000003 00000000"  # code, language, version, opaque, flag
    "00000000"  # no remark
    "0000000c 0005 746f706963 00000001 54"  # ext: topic = T
)
MSGPACK_HEADER = bytes.fromhex("97 69 00 cd0199 03 00 c0 81 a5746f706963 a154")

HEADERS = {
    HeaderEncoding.JSON: JSON_HEADER,
    HeaderEncoding.ROCKETMQ: ROCKETMQ_HEADER,
    HeaderEncoding.MSGPACK: MSGPACK_HEADER,
}


def frame(encoding: int, header: bytes, body: bytes = b"") -> bytes:
    return (
        struct.pack(">II", 4 + len(header) + len(body), encoding << 24 | len(header))
        + header
        + body
    )


def payload(encoding: int, header: bytes, body: bytes = b"") -> memoryview:
    return memoryview(frame(encoding, header, body))[4:]


def route_request(encoding: HeaderEncoding) -> Command:
    return Command(
        105, {"topic": "T"}, body=b"body", opaque=3, language=Language.JAVA, encoding=encoding
    )


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_a_request_is_encoded_to_the_golden_bytes(encoding: HeaderEncoding) -> None:
    """A request is laid out as RocketMQ's: length, encoding, header length, header, body."""
    assert b"".join(encode_frame(route_request(encoding))) == frame(
        encoding, HEADERS[encoding], b"body"
    )


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_the_golden_bytes_are_decoded_to_the_request(encoding: HeaderEncoding) -> None:
    """Frames of other implementations are read."""
    assert decode_frame(payload(encoding, HEADERS[encoding], b"body")) == route_request(encoding)


def test_a_body_is_a_view_into_its_frame_and_pieces_go_out_uncopied() -> None:
    """Raw log bytes are never copied by the codec."""
    received = payload(2, MSGPACK_HEADER, b"body")
    body = decode_frame(received).body
    assert isinstance(body, memoryview)
    assert body.obj is received.obj

    pieces = (b"first", memoryview(b"second"))
    sent = encode_frame(Command(11, body=pieces))
    assert sent[1] is pieces[0]
    assert sent[2] is pieces[1]


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts
finite = st.floats(allow_nan=False, allow_infinity=False)
lists = st.lists(scalars | st.lists(st.integers(0, 99), max_size=3), max_size=4)


def commands(
    encoding: HeaderEncoding, ext: st.SearchStrategy[dict[str, object]]
) -> st.SearchStrategy:
    return st.builds(
        Command,
        code=st.integers(-(2**15), 2**15 - 1),
        ext=ext,
        body=st.binary(max_size=200),
        remark=texts.filter(bool) | st.none(),
        opaque=st.integers(-(2**31), 2**31 - 1),
        flag=st.integers(0, 3),
        language=st.sampled_from(Language),
        version=st.integers(0, 2**16 - 1),
        encoding=st.just(encoding),
    )


string_ext = st.dictionaries(texts, texts, max_size=6)
any_ext = st.dictionaries(texts, scalars | finite | st.binary(max_size=20) | lists, max_size=6)


@given(
    commands(HeaderEncoding.JSON, string_ext)
    | commands(HeaderEncoding.ROCKETMQ, string_ext)
    | commands(HeaderEncoding.MSGPACK, any_ext)
)
def test_decoding_undoes_encoding(command: Command) -> None:
    """Every command that an encoding can express comes back as it was."""
    encoded = b"".join(encode_frame(command))
    assert struct.unpack_from(">I", encoded)[0] == len(encoded) - 4
    assert decode_frame(memoryview(encoded)[4:]) == command


@pytest.mark.parametrize("encoding", [HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ])
def test_outside_msgpack_every_ext_value_goes_out_as_a_string(encoding: HeaderEncoding) -> None:
    """Stock clients expect strings: numbers in decimal, booleans as true and false, no nulls."""
    command = Command(
        0, {"n": -5, "yes": True, "no": False, "nothing": None, "s": "x"}, encoding=encoding
    )
    encoded = b"".join(encode_frame(command))
    assert decode_frame(memoryview(encoded)[4:]).ext == {
        "n": "-5",
        "yes": "true",
        "no": "false",
        "s": "x",
    }


@pytest.mark.parametrize("encoding", [HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ])
@pytest.mark.parametrize("value", [[1], b"bytes"])
def test_lists_and_bytes_need_msgpack(encoding: HeaderEncoding, value: object) -> None:
    """A value that an encoding can't carry is refused by name before anything is sent."""
    with pytest.raises(FrameError, match="'runs'"):
        encode_frame(Command(0, {"runs": value}, encoding=encoding))


def test_a_code_above_16_bits_does_not_fit_the_rocketmq_header() -> None:
    """The POP family's codes would be silently cut otherwise."""
    with pytest.raises(FrameError, match="200050"):
        encode_frame(Command(200050, encoding=HeaderEncoding.ROCKETMQ))


@pytest.mark.parametrize(
    ("json", "language"),
    [
        (b'{"code":34}', Language.JAVA),
        (b'{"code":34,"language":"KLINGON"}', None),
        (b'{"code":34,"language":null}', None),
        (b'{"code":34,"language":"CPP"}', Language.CPP),
    ],
)
def test_an_unknown_language_is_none_and_a_missing_one_java(
    json: bytes, language: Language | None
) -> None:
    """An unknown language is None and a missing one Java, as in the reference."""
    command = decode_frame(payload(0, json))
    assert (command.code, command.language) == (34, language)


def test_json_of_other_implementations_is_tolerated() -> None:
    """JSON may have blanks, nulls, unknown members, and numbers as strings."""
    command = decode_frame(
        payload(
            0,
            b' { "version" : "401", "extFields": {"queueId": 3, "order":true, "x":null},\n'
            b'"code":310, "remark":null, "flag":null, "opaque":7, "what":[1,{}]}',
        )
    )
    assert command == Command(
        310,
        {"queueId": 3, "order": True, "x": None},
        body=memoryview(b""),
        opaque=7,
        version=401,
        language=Language.JAVA,
        encoding=HeaderEncoding.JSON,
    )


def test_an_unknown_language_ordinal_is_none() -> None:
    """An unknown language is None in both binary headers."""
    rocketmq = bytearray(ROCKETMQ_HEADER)
    rocketmq[2] = 99
    msgpack = bytearray(MSGPACK_HEADER)
    msgpack[2] = 99
    assert decode_frame(payload(1, rocketmq)).language is None
    assert decode_frame(payload(2, msgpack)).language is None


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (memoryview(b""), "too short"),
        (memoryview(b"\0\0"), "too short"),
        (
            memoryview(struct.pack(">I", 2 << 24 | 100) + b"x"),
            "header of 100 bytes in a frame of 5",
        ),
        (memoryview(struct.pack(">I", HEADER_BYTES_MAX + 1)), "above"),
        (payload(7, b"{}"), "encoding 7 is not known"),
        (payload(0, b""), "can't be decoded"),
        (payload(0, b"{}"), "code"),
        (payload(0, b'{"code":"ten"}'), "code"),
        (payload(0, b'{"code":1,"extFields":{"a":[1]}}'), "can't be decoded"),
        (payload(0, b'{"code":1,"x":' + b"[" * 100_000), "can't be decoded"),
        (payload(0, b'{"code":1,"remark":"\xff"}'), "can't be decoded"),
        (payload(1, ROCKETMQ_HEADER[:10]), "too short"),
        (payload(1, ROCKETMQ_HEADER[:-1]), "holds a string of 12 bytes"),
        (payload(1, ROCKETMQ_HEADER + b"\0"), "1 bytes after the end"),
        (payload(1, ROCKETMQ_HEADER[:13] + b"\xff\xff\xff\xff" + b"\0" * 4), "string of -1 bytes"),
        (payload(2, MSGPACK_HEADER[:-1]), "can't be decoded"),
        (payload(2, b"\x96" + MSGPACK_HEADER[1:-8]), "can't be decoded"),
        (payload(2, MSGPACK_HEADER[:-2] + b"\x80"), "ext field 'topic' holds a dict"),
        (payload(2, MSGPACK_HEADER[:-2] + b"\x91" * 5 + b"\xc0"), "too deep"),
        (payload(2, b"\x91" * 30_000), "can't be decoded"),
        (payload(2, MSGPACK_HEADER[:-2] + b"\xdc\x80\x01" + b"\x90" * 32_769), "32768"),
        (payload(0, b'{"code":1,"extFields":{"a":1.5}}'), "float"),
    ],
)
def test_garbage_is_a_frame_error_that_says_why(bad: memoryview, reason: str) -> None:
    """Garbage is a FrameError with the reason, which closes its connection alone."""
    with pytest.raises(FrameError, match=reason):
        decode_frame(bad)


@given(st.sampled_from([0, 1, 2, 3, 255]), st.binary(max_size=300))
def test_random_bytes_never_raise_anything_else(encoding: int, header: bytes) -> None:
    """Random bytes raise FrameError or nothing."""
    with suppress(FrameError):
        decode_frame(payload(encoding, header))


@given(st.sampled_from(HeaderEncoding), st.data())
def test_a_flipped_byte_never_raises_anything_else(
    encoding: HeaderEncoding, data: st.DataObject
) -> None:
    """A flipped byte of a right frame raises FrameError or nothing."""
    header = bytearray(HEADERS[encoding])
    header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FrameError):
        decode_frame(payload(encoding, header))


def test_a_frame_above_the_bound_is_not_encoded() -> None:
    """The other end would close the connection: better to say so before anything is sent."""
    with pytest.raises(FrameError, match="above"):
        encode_frame(Command(0, body=bytes(FRAME_BYTES_MAX)))
    with pytest.raises(FrameError, match="above"):
        encode_frame(Command(0, remark="x" * HEADER_BYTES_MAX))


def test_text_that_is_not_unicode_is_not_encoded() -> None:
    """A lone surrogate has no UTF-8."""
    for encoding in HeaderEncoding:
        with pytest.raises(FrameError, match="can't be encoded"):
            encode_frame(Command(0, remark="\ud800", encoding=encoding))
