"""Cut a byte stream into frames, without copying more than once and without buffering nonsense.

Most chunks of a socket hold whole frames: these are decoded in place, as views. Only a frame that
ends in a later chunk is collected in a buffer, which becomes the frame itself. The length word is
checked as soon as its four bytes are there, so a frame above FRAME_BYTES_MAX is refused before any
of it is kept.

The caller bounds the time for one frame: `partial_bytes` tells that a frame has begun.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from dledger.buffers import Buffer
from dledger.errors import FrameError
from dledger.limits import FRAME_BYTES_MAX
from dledger.remoting.codec import decode_frame
from dledger.remoting.command import Command

_LENGTH = struct.Struct(">I")
_LENGTH_BYTES = 4
_EMPTY = memoryview(b"")
_TLS = (
    "a TLS hello: this port speaks RocketMQ's protocol without TLS. Switch TLS off in the client "
    "(tls.enable=false)"
)
_HTTP = "an HTTP request: this port speaks RocketMQ's protocol (Remoting)"
#: The first bytes of other protocols. Read as a length, each is far above any bound.
_FOREIGN = {b"\x16\x03": _TLS} | dict.fromkeys((b"GET ", b"POST", b"HEAD", b"PUT ", b"PRI "), _HTTP)


class FrameDecoder:
    """Decoder of a stream: bytes in, commands out. After a FrameError the stream is lost: close the
    connection."""

    __slots__ = ("_chunk", "_frame_bytes_max", "_partial", "_position", "count")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        #: Commands taken so far.
        self.count = 0
        #: The chunk being cut into frames, and how far.
        self._chunk = _EMPTY
        self._position = 0
        #: The part of a frame that began in an earlier chunk, its length word included.
        self._partial = bytearray()

    @property
    def partial_bytes(self) -> int:
        """Bytes held of an incomplete frame; 0 between frames. Take `frames()` first."""
        return len(self._partial)

    @property
    def held_bytes(self) -> int:
        """Bytes held of frames that are not taken yet, and what growing may have allocated."""
        partial = len(self._partial)
        return partial + (partial >> 3) + len(self._chunk)

    def forget(self) -> None:
        """Drop everything that was fed and not taken."""
        self._chunk = _EMPTY
        self._position = 0
        self._partial = bytearray()

    def feed(self, data: Buffer) -> None:
        """Take the stream's next bytes. `data` must not change afterwards: bodies are views into
        it."""
        left = self._chunk[self._position :]
        self._chunk = memoryview(bytes(left) + data if len(left) else data)
        self._position = 0

    def frames(self) -> Iterator[Command]:
        """Yield the commands that are complete. Raises FrameError at the first bad frame."""
        while (frame := self._next_frame()) is not None:
            command = decode_frame(frame)
            command.size_bytes = len(frame)
            self.count += 1
            yield command

    def _next_frame(self) -> memoryview | None:
        if self._partial:
            return self._complete_partial()
        chunk, start = self._chunk, self._position + _LENGTH_BYTES
        if start <= len(chunk):
            end = start + self._length_at(chunk, self._position)
            if end < len(chunk):
                self._position = end
                return chunk[start:end]
            if end == len(chunk):
                self._chunk, self._position = _EMPTY, 0
                return chunk[start:]
        if chunk:
            self._keep(len(chunk) - self._position)
        return None

    def _complete_partial(self) -> memoryview | None:
        if len(self._partial) < _LENGTH_BYTES:
            self._keep(_LENGTH_BYTES - len(self._partial))
            if len(self._partial) < _LENGTH_BYTES:
                return None
        size = _LENGTH_BYTES + self._length_at(self._partial, 0)
        self._keep(size - len(self._partial))
        if len(self._partial) < size:
            return None
        frame = memoryview(self._partial)[_LENGTH_BYTES:]
        self._partial = bytearray()
        return frame

    def _keep(self, count: int) -> None:
        """Move up to `count` bytes of the chunk to the partial frame; drop a chunk that is used
        up."""
        end = min(self._position + count, len(self._chunk))
        self._partial += self._chunk[self._position : end]
        self._position = end
        if end == len(self._chunk):
            self._chunk = _EMPTY
            self._position = 0

    def _length_at(self, data: Buffer, position: int) -> int:
        length: int = _LENGTH.unpack_from(data, position)[0]
        if length > self._frame_bytes_max:
            start = bytes(data[position : position + _LENGTH_BYTES])
            what = next((what for begin, what in _FOREIGN.items() if start.startswith(begin)), None)
            raise FrameError(what or f"a frame of {length} bytes is above {self._frame_bytes_max}")
        return length
