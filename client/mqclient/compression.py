"""Compressed bodies as RocketMQ has them: zlib, LZ4, Zstandard, named by bits of a record's flag.

A consumer reads all three. The libraries of the latter two are loaded when the first such body
comes or goes. What a body inflates to is bounded before it is: a few bytes may stand for terabytes.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from dledger.buffers import Buffer
from dledger.errors import BadInput, RecordError
from dledger.remoting.record import COMPRESSED, COMPRESSION_TYPE
from mqclient import limits

if TYPE_CHECKING:
    from collections.abc import Callable

Compression: TypeAlias = Literal["zlib", "lz4", "zstd"]

LZ4: Final = 0x100
ZSTD: Final = 0x200
ZLIB: Final = 0x300
#: Producers of RocketMQ 4 name no algorithm, and mean zlib.
UNNAMED: Final = 0x000


def check_compression(name: str | None, least_bytes: int) -> Compressor | None:
    """The compressor of a producer's bodies from `least_bytes` on. Raises BadInput."""
    if name is None:
        return None
    if name not in get_args(Compression):
        raise BadInput(f"compression={name!r}: expected one of {', '.join(get_args(Compression))}")
    if least_bytes < 0:
        raise BadInput(f"compress_from_bytes={least_bytes}: expected the size of a body")
    deflate, bits = {"zlib": (_zlib, ZLIB), "lz4": (_lz4, LZ4), "zstd": (_zstd, ZSTD)}[name]
    return Compressor(deflate, COMPRESSED | bits, least_bytes)


class Compressor:
    """Compresses the bodies that become smaller by it."""

    def __init__(self, deflate: Callable[[bytes], bytes], sys_flag: int, least_bytes: int) -> None:
        self._deflate = deflate
        self._sys_flag = sys_flag
        self._least_bytes = least_bytes

    def deflate(self, body: bytes) -> tuple[bytes, int]:
        """A body as it is stored, and the bits of its system flag that say how."""
        if len(body) < self._least_bytes:
            return body, 0
        deflated = self._deflate(body)
        return (deflated, self._sys_flag) if len(deflated) < len(body) else (body, 0)


def inflate(body: Buffer, sys_flag: int, what: str) -> bytes:
    """A compressed body as it was. Raises RecordError, which names `what`."""
    kind = sys_flag & COMPRESSION_TYPE
    readers = {UNNAMED: _from_zlib, ZLIB: _from_zlib, LZ4: _from_lz4, ZSTD: _from_zstd}
    if kind not in readers:
        raise RecordError(f"{what} is compressed by algorithm {kind:#x}, which is unknown")
    inflated, is_whole = readers[kind](body, what)
    if not is_whole:
        raise RecordError(
            f"{what} is cut off or inflates to more than {limits.INFLATED_BODY_BYTES_MAX} bytes"
        )
    return inflated


def _zlib(body: bytes) -> bytes:
    return zlib.compress(body, limits.ZLIB_LEVEL)


def _lz4(body: bytes) -> bytes:
    import lz4.frame  # noqa: PLC0415 - few programs need it

    # Java's library reads independent blocks only.
    compressed: bytes = lz4.frame.compress(body, block_linked=False)
    return compressed


def _zstd(body: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 - as above

    compressed: bytes = zstandard.ZstdCompressor(level=limits.ZSTD_LEVEL).compress(body)
    return compressed


def _from_zlib(body: Buffer, what: str) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(body, limits.INFLATED_BODY_BYTES_MAX)
    except zlib.error as error:
        raise RecordError(f"{what} is not a zlib stream") from error
    return inflated, inflater.eof


def _from_lz4(body: Buffer, what: str) -> tuple[bytes, bool]:
    import lz4.frame  # noqa: PLC0415 - as above

    inflater = lz4.frame.LZ4FrameDecompressor()
    try:
        inflated: bytes = inflater.decompress(bytes(body), limits.INFLATED_BODY_BYTES_MAX)
    except (RuntimeError, EOFError) as error:
        raise RecordError(f"{what} is not an LZ4 frame") from error
    return inflated, bool(inflater.eof)


def _from_zstd(body: Buffer, what: str) -> tuple[bytes, bool]:
    """Twice: the library bounds what it gives only where it does not tell a frame that is cut off
    from a whole one."""
    import zstandard  # noqa: PLC0415 - as above

    inflater = zstandard.ZstdDecompressor(max_window_size=limits.ZSTD_WINDOW_BYTES_MAX)
    try:
        with inflater.stream_reader(bytes(body)) as reader:
            first = reader.read(limits.INFLATED_BODY_BYTES_MAX + 1)
        if len(first) > limits.INFLATED_BODY_BYTES_MAX:
            return b"", False
        whole = inflater.decompressobj()
        return whole.decompress(bytes(body)), whole.eof
    except zstandard.ZstdError as error:
        raise RecordError(f"{what} is not a Zstandard frame") from error
