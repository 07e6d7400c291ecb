"""Encodes and decodes a frame of the Remoting protocol.

A frame is a 4-byte length N, then N bytes: a word whose top byte is the header's encoding and whose
low 24 bits are its length, the header, the body. All integers are big-endian. Each frame says for
itself how its header is encoded, and an answer uses the encoding of its request:

- JSON (0): an object; the typed header lies in `extFields`, every value a string.
- ROCKETMQ (1): fixed fields, then strings with a length before them.
- MSGPACK (2), ours: the array [code, language, version, opaque, flag, remark, ext].

Bodies are never copied here: a decoded body is a view into the frame, an encoded one is sent as the
buffer that was given.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from dledger.buffers import Buffer
from dledger.errors import FrameError
from dledger.limits import (
    EXT_DEPTH_MAX,
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADER_LISTS_MAX,
)
from dledger.remoting import rocketmq_header
from dledger.remoting.command import Command, ExtValue, HeaderEncoding, Language
from dledger.remoting.headers.base import text
from dledger.remoting.numbers import Int32

_WORDS = struct.Struct(">II")
_WORD = struct.Struct(">I")
_WORD_BYTES = 4
_ENCODING_SHIFT = 24
_HEADER_LENGTH_MASK = 0xFF_FFFF

_JSON, _ROCKETMQ, _MSGPACK = HeaderEncoding.JSON, HeaderEncoding.ROCKETMQ, HeaderEncoding.MSGPACK
_LANGUAGE_OF_NAME = {language.name: language for language in Language}
_LANGUAGE_OF_ORDINAL: dict[int | None, Language] = {
    language.value: language for language in Language
}
_LIST_STARTS = bytes((*range(0x90, 0xA0), 0xDC, 0xDD))
"""Bytes that begin a list in MessagePack. A text has them, too, but no header has so much text."""
_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})


class _JsonHeader(msgspec.Struct, rename="camel", omit_defaults=True):
    """The header of a command as JSON. Members are in the order of the reference's serialiser."""

    code: Int32
    ext_fields: dict[str, str | int | bool | None] | None = None
    """No client writes a number with a fraction; one with a large exponent takes 12 us to read."""
    flag: Int32 | None = None
    language: str | int | msgspec.UnsetType | None = msgspec.UNSET
    opaque: Int32 | None = None
    remark: str | None = None
    serialize_type: str | None = msgspec.field(default=None, name="serializeTypeCurrentRPC")
    version: Int32 | None = None


class _MsgpackHeader(msgspec.Struct, array_like=True):
    """The header of a command as msgpack. The types inside `ext` are checked afterwards."""

    code: Int32
    language: int | None
    version: Int32
    opaque: Int32
    flag: Int32
    remark: str | None
    ext: dict[str, Any]


_json_decoder = msgspec.json.Decoder(_JsonHeader, strict=False)
_json_encoder = msgspec.json.Encoder()
_msgpack_decoder = msgspec.msgpack.Decoder(_MsgpackHeader)
_msgpack_encoder = msgspec.msgpack.Encoder()


def encode_frame(command: Command) -> tuple[Buffer, ...]:
    """Encode `command` as pieces to send in order: length and header first, then the body.

    Raises FrameError if the frame would be above FRAME_BYTES_MAX, or if the chosen header encoding
    can't express a value (lists outside msgpack, codes above 32,767 in ROCKETMQ).
    """
    encoding = command.encoding
    try:
        if encoding is _MSGPACK:
            header = _encode_msgpack(command)
        elif encoding is _JSON:
            header = _encode_json(command)
        else:
            header = rocketmq_header.encode(command, _ext_as_text(command))
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise FrameError(f"the header of {command.code} can't be encoded: {error}") from error
    if len(header) > HEADER_BYTES_MAX:
        raise FrameError(f"a header of {len(header)} bytes is above {HEADER_BYTES_MAX}")
    body = command.body
    pieces = body if isinstance(body, tuple) else (body,) if len(body) else ()
    length = _WORD_BYTES + len(header) + sum(map(len, pieces))
    if length > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {length} bytes is above {FRAME_BYTES_MAX}")
    words = _WORDS.pack(length, encoding << _ENCODING_SHIFT | len(header))
    return (words + header, *pieces)


def decode_frame(payload: memoryview) -> Command:
    """Decode a frame without its length word. The body is a view into `payload`, not a copy.

    Raises FrameError if it is no frame; the connection that it came from can't be trusted further.
    """
    size = len(payload)
    if size < _WORD_BYTES:
        raise FrameError(f"a frame of {size} bytes is too short for a header word")
    (word,) = _WORD.unpack_from(payload)
    encoding = word >> _ENCODING_SHIFT
    header_bytes = word & _HEADER_LENGTH_MASK
    if header_bytes > HEADER_BYTES_MAX:
        raise FrameError(f"a header of {header_bytes} bytes is above {HEADER_BYTES_MAX}")
    body_start = _WORD_BYTES + header_bytes
    if body_start > size:
        raise FrameError(f"a header of {header_bytes} bytes in a frame of {size} bytes")
    header = payload[_WORD_BYTES:body_start]
    # An empty view would keep alive all that arrived with the frame.
    body: Buffer = payload[body_start:] if body_start < size else b""
    try:
        if encoding == _MSGPACK:
            return _decode_msgpack(header, body)
        if encoding == _JSON:
            return _decode_json(header, body)
        if encoding == _ROCKETMQ:
            return rocketmq_header.decode(header, body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"the header can't be decoded: {error}") from error
    raise FrameError(f"header encoding {encoding} is not known; known are 0, 1 and 2")


def _encode_msgpack(command: Command) -> bytes:
    return _msgpack_encoder.encode(
        (
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            command.remark,
            command.ext,
        )
    )


def _decode_msgpack(payload: memoryview, body: Buffer) -> Command:
    if len(payload) > HEADER_LISTS_MAX:
        lists = len(payload) - len(bytes(payload).translate(None, _LIST_STARTS))
        if lists > HEADER_LISTS_MAX:
            raise FrameError(f"a header with some {lists} lists; at most {HEADER_LISTS_MAX}")
    header = _msgpack_decoder.decode(payload)
    for name, value in header.ext.items():
        if type(value) not in _SCALARS:
            _check_list(name, value, EXT_DEPTH_MAX)
    return Command(
        code=header.code,
        ext=header.ext,
        body=body,
        remark=header.remark,
        opaque=header.opaque,
        flag=header.flag,
        language=_LANGUAGE_OF_ORDINAL.get(header.language),
        version=header.version,
        encoding=_MSGPACK,
    )


def _check_list(name: str, value: object, depth_left: int) -> None:
    """Allow lists of scalars and of lists, up to a depth. Maps are not allowed."""
    if not isinstance(value, list) or not depth_left:
        raise FrameError(f"ext field {name!r} holds a {type(value).__name__}, or lists too deep")
    for item in value:
        if type(item) not in _SCALARS:
            _check_list(name, item, depth_left - 1)


def _encode_json(command: Command) -> bytes:
    return _json_encoder.encode(
        _JsonHeader(
            code=command.code,
            ext_fields=dict(_ext_as_text(command)),
            flag=command.flag,
            language=msgspec.UNSET if command.language is None else command.language.name,
            opaque=command.opaque,
            remark=command.remark,
            serialize_type="JSON",
            version=command.version,
        )
    )


def _decode_json(payload: memoryview, body: Buffer) -> Command:
    header = _json_decoder.decode(payload)
    ext: dict[str, ExtValue] = {}
    if header.ext_fields is not None:
        ext.update(header.ext_fields)
    return Command(
        code=header.code,
        ext=ext,
        body=body,
        remark=header.remark,
        opaque=header.opaque or 0,
        flag=header.flag or 0,
        language=_language_of(header.language),
        version=header.version or 0,
        encoding=_JSON,
    )


def _language_of(written: str | int | msgspec.UnsetType | None) -> Language | None:
    """The language of a name or an ordinal. A missing one means Java; for an unknown one None."""
    if written is msgspec.UNSET:
        return Language.JAVA
    if isinstance(written, str):
        return _LANGUAGE_OF_NAME.get(written)
    return _LANGUAGE_OF_ORDINAL.get(written)


def _ext_as_text(command: Command) -> dict[str, str]:
    """`ext` with every value a string, None left out."""
    texts: dict[str, str] = {}
    for name, value in command.ext.items():
        if value is None:
            continue
        written = value if isinstance(value, str) else text(value)
        if not isinstance(written, str):
            raise FrameError(
                f"ext field {name!r} is a {type(value).__name__}, "
                f"which a {command.encoding.name} header can't carry"
            )
        texts[name] = written
    return texts
