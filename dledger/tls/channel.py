"""A socket that encrypts: what the layers above ask of a socket, over TLS.

The TLS of `ssl` works on two buffers in memory here, and never on the socket. So a call does
exactly what it does on a socket that does not block: it takes what is there, or says that nothing
is. Whoever reads and writes plain sockets calls the same methods, and pays nothing for this one.

Bytes count as sent when the socket has taken their last encrypted byte. If it has taken some of
them only, one byte less is reported than was encrypted: so the caller comes again, and knows that
all requests before that byte may have been read by the other end.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterable
from typing import Any

import anyio
import anyio.lowlevel

from dledger.buffers import Buffer
from dledger.limits import (
    TLS_RECORD_BYTES_MAX,
    TLS_SENT_AT_ONCE_BYTES,
    TLS_UNASKED_BYTES_MAX,
)
from dledger.tls.reasons import explained

_HEAD_BYTES = 5
_FIRST_TYPE, _LAST_TYPE = 20, 23


class Channel:
    """An end of an encrypted connection, over a connected socket that does not block.

    `dledger.tls.handshake` makes it. As a socket it raises BlockingIOError and other OSErrors.
    """

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, server_name: str | None = None
    ) -> None:
        self._socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )
        #: Encrypted bytes that the socket has not taken.
        self._unsent = memoryview(b"")
        #: Whether one byte is encrypted that was not reported as sent.
        self._held = 0
        #: Bytes that were decrypted and not read.
        self._plain = b""

    # -- what a socket has ------------------------------------------------------------------

    def fileno(self) -> int:
        """The socket's descriptor, to wait for it."""
        return self._socket.fileno()

    def setblocking(self, flag: bool) -> None:
        """Set whether the socket blocks."""
        self._socket.setblocking(flag)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Set an option of the socket."""
        self._socket.setsockopt(level, option, value)

    def close(self) -> None:
        """Close the socket underneath. The other end gets no notice: frames have lengths, so a cut
        shows."""
        self._socket.close()

    def recv(self, size: int) -> bytes:
        """All that records hold that are complete with at most `size` encrypted bytes more."""
        plain = self._plain or self._decrypted(self._socket.recv(size))
        self._plain = b""
        return plain

    def recv_into(self, buffer: memoryview) -> int:
        """Read decrypted bytes into a buffer; returns their count. Bytes that do not fit are read
        next: see `readable`."""
        plain = self._plain or self._decrypted(self._socket.recv(len(buffer)))
        count = min(len(plain), len(buffer))
        buffer[:count] = plain[:count]
        self._plain = plain[count:]
        return count

    def send(self, data: Buffer) -> int:
        """Send bytes; how many count as sent."""
        return self.sendmsg([data])

    def sendmsg(self, pieces: Iterable[Buffer]) -> int:
        """Send bytes; how many count as sent."""
        if not self.flush():
            raise BlockingIOError(errno.EAGAIN, "the socket takes no more")
        gathered, total = list[Buffer](), 0
        for piece in pieces:
            room = TLS_SENT_AT_ONCE_BYTES - total
            gathered.append(piece if len(piece) <= room else memoryview(piece)[:room])
            total += len(gathered[-1])
            if total == TLS_SENT_AT_ONCE_BYTES:
                break
        plain, at = memoryview(b"".join(gathered)), self._held
        self._held = 0
        try:
            while at < total:
                at += self._tls.write(plain[at:])
        except ssl.SSLError as error:
            raise OSError(explained(error)) from error
        if self.flush() or not total:
            return total
        self._held = 1
        return total - 1

    # -- what TLS adds ----------------------------------------------------------------------

    async def readable(self) -> None:
        """Wait until there are bytes, or an end, to read."""
        if self._plain:
            await anyio.lowlevel.checkpoint()
        else:
            await anyio.wait_readable(self._socket)

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts and addresses that the other end's certificate names, if it was verified."""
        found: Any = (self._tls.getpeercert() or {}).get("subjectAltName", ())
        return tuple(name for _, name in found)

    @property
    def raw_certificate(self) -> bytes:
        """The other end's certificate (DER), verified or not; empty if it has shown none."""
        return self._tls.getpeercert(binary_form=True) or b""

    @property
    def version(self) -> str:
        """The version of TLS, for example "TLSv1.3"."""
        return self._tls.version() or ""

    def shake(self) -> bool:
        """Go on with the handshake; whether it is complete. Raises SSLError."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, record: bytes) -> None:
        """Take one record of the handshake."""
        self._incoming.write(record)

    def flush(self) -> bool:
        """Hand what is encrypted to the socket; whether it has taken all. Raises OSError."""
        while True:
            if not self._unsent:
                if not self._outgoing.pending:
                    return True
                self._unsent = memoryview(self._outgoing.read())
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            self._unsent = self._unsent[sent:]

    def _decrypted(self, data: bytes) -> bytes:
        """The content of the records that `data` completes; empty for the connection's end.

        Raises BlockingIOError if none is complete.
        """
        if not data:
            return b""
        self._incoming.write(data)
        pieces, ended = list[bytes](), False
        try:
            while not ended:
                piece = self._tls.read(TLS_RECORD_BYTES_MAX)
                pieces.append(piece)
                ended = not piece
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.tell_why()
            raise OSError(explained(error)) from error
        if self._outgoing.pending:  # an answer of TLS itself, for example to an update of its keys
            self.flush()
            if self._outgoing.pending > TLS_UNASKED_BYTES_MAX:
                raise OSError("it has TLS answer again and again, and reads no answer")
        plain = b"".join(pieces)
        if not plain and not ended:
            raise BlockingIOError(errno.EAGAIN, "no record is complete")
        return plain

    def tell_why(self) -> None:
        """Send the alert, if there is one, and the socket takes it."""
        try:
            self.flush()
        except OSError:
            return


class RecordReader:
    """Reads a connection's first records, one by one and not a byte further.

    So what was sent behind the handshake is still to be waited for when that is complete.
    """

    def __init__(self, sock: socket.socket, bytes_max: int) -> None:
        self._socket = sock
        self._left = bytes_max

    async def next(self) -> bytes:
        """Read the next TLS record. Raises OSError, also for bytes that are not a record, and at
        the bound."""
        head = await self._exactly(_HEAD_BYTES)
        length = int.from_bytes(head[3:], "big")
        if not _FIRST_TYPE <= head[0] <= _LAST_TYPE or length > TLS_RECORD_BYTES_MAX:
            raise OSError(
                "it does not speak TLS" if head[0] < _FIRST_TYPE else "it sent no TLS record"
            )
        if length > self._left:
            raise OSError("its handshake is too long")
        self._left -= length + _HEAD_BYTES
        return head + await self._exactly(length)

    async def _exactly(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            await anyio.wait_readable(self._socket)
            try:
                piece = self._socket.recv(count - len(received))
            except BlockingIOError:
                continue
            if not piece:
                raise EOFError("it closed the connection during the handshake")
            received += piece
        return received
