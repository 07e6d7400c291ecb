"""The ROCKETMQ binary header: fixed fields, then strings that carry their length.

::

    code i16 | language u8 | version u16 | opaque i32 | flag i32
    remark length i32 | remark
    ext length i32 | entries: key length u16 | key | value length i32 | value

A length of 0 means null. Codes above 32,767 (the POP family) can't be expressed; their users need
JSON. Layout: RocketMQ's RocketMQSerializable.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from dledger.buffers import Buffer
from dledger.errors import FrameError
from dledger.remoting.command import Command, ExtValue, HeaderEncoding, Language

_FIXED = struct.Struct(">hBHii")
_U16 = struct.Struct(">H")
_I32 = struct.Struct(">i")
_LANGUAGE_OF_ORDINAL = {language.value: language for language in Language}


def encode(command: Command, ext: Mapping[str, str]) -> bytes:
    """Encode the header of `command` with the already flattened `ext`.

    Raises FrameError for a number that its field can't hold.
    """
    language = Language.OTHER if command.language is None else command.language
    remark = (command.remark or "").encode()
    try:
        entries = b"".join(
            _U16.pack(len(key)) + key + _I32.pack(len(value)) + value
            for key, value in ((key.encode(), value.encode()) for key, value in ext.items())
        )
        fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag)
    except struct.error as error:
        raise FrameError(
            f"code {command.code}, version {command.version}, opaque {command.opaque} or a key's "
            f"length does not fit the ROCKETMQ header: {error}"
        ) from error
    return b"".join((fixed, _I32.pack(len(remark)), remark, _I32.pack(len(entries)), entries))


def decode(header: memoryview, body: Buffer) -> Command:
    """Decode a header of exactly these bytes. Raises FrameError or UnicodeDecodeError."""
    if len(header) < _FIXED.size:
        raise FrameError(f"a ROCKETMQ header of {len(header)} bytes is too short")
    code, language, version, opaque, flag = _FIXED.unpack_from(header)
    remark, position = _take(header, _FIXED.size, _I32)
    entries, end = _take(header, position, _I32)
    if end != len(header):
        raise FrameError(f"{len(header) - end} bytes after the end of a ROCKETMQ header")
    ext: dict[str, ExtValue] = {}
    position = 0
    while position < len(entries):
        key, position = _take(entries, position, _U16)
        value, position = _take(entries, position, _I32)
        ext[str(key, "utf-8")] = str(value, "utf-8")
    return Command(
        code=code,
        ext=ext,
        body=body,
        remark=str(remark, "utf-8") if len(remark) else None,
        opaque=opaque,
        flag=flag,
        language=_LANGUAGE_OF_ORDINAL.get(language),
        version=version,
        encoding=HeaderEncoding.ROCKETMQ,
    )


def _take(data: memoryview, position: int, length: struct.Struct) -> tuple[memoryview, int]:
    """The bytes behind the length at `position`, and the position after them."""
    start = position + length.size
    if start > len(data):
        raise FrameError("a ROCKETMQ header ends inside a length")
    (size,) = length.unpack_from(data, position)
    end = start + size
    if size < 0 or end > len(data):
        raise FrameError(f"a ROCKETMQ header of {len(data)} bytes holds a string of {size} bytes")
    return data[start:end], end
