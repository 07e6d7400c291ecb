"""Signatures of a user's requests: that of stock clients, and ours. Pure.

Stock clients add their name (`AccessKey`) and the HMAC-SHA1 of all other values, sorted by their
fields' names and written one after the other, and the body. So the request's code is not signed,
nor where a value ends, and what was signed can be sent again.

Ours covers the code, each field with its name, and the body; and a stamp, which makes a request
good for one place only: the nonce that the server gave this connection, a number that grows from
request to request, and the time. So a captured request can't be sent again, on whatever connection
or to whatever server, and no server has to remember any. RocketMQ's own servers know stock
signatures only.

A long body is hashed by BLAKE3 first, where both ends have it: that takes a quarter of the time,
and nearly all that a signature costs is its body's hash. A signed field says so, so a request can't
be taken for one of the other kind. The server tells a client that it can (SIGN_ON).

Both are compared in constant time, on raw bytes, for each request: no verdict is kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple, Protocol

import msgspec

from dledger import limits
from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers.base import text
from dledger.trust.signing import raw_bytes

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
STAMP: Final = "dledgerStamp"
OWN_SIGNATURE: Final = "dledgerSignature"
BODY_HASH: Final = "dledgerBodyHash"
BLAKE3: Final = "blake3"
_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
#: Fields that stock clients add after they have signed.
_UNSIGNED: Final = frozenset({SIGNATURE, "__ZONE_NAME", "__ZONE_MODE"})

CLUSTER_USER: Final = "dledger-cluster"
"""The user that whoever has the cluster's secret can be. No other may have this name."""


class Hasher(Protocol):
    """A hash that takes bytes, and gives their digest."""

    def update(self, data: Buffer, /) -> object:
        """Take more bytes into the tag."""
        ...

    def digest(self) -> bytes:
        """The digest of all bytes so far."""
        ...


class Stamp(NamedTuple):
    """The one place that a request is good for."""

    nonce: str
    number: int
    time_ms: int


class Key:
    """A user's password, ready to sign and to verify."""

    def __init__(self, password: str) -> None:
        secret = password.encode()
        self._sha1 = hmac.new(secret, digestmod=hashlib.sha1)
        self._sha256 = hmac.new(secret, digestmod=hashlib.sha256)

    @classmethod
    def of_cluster(cls, secret: bytes) -> Key:
        """Derive the key of `CLUSTER_USER` from the cluster's secret."""
        return cls(hmac.digest(secret, b"dledger user of the cluster", hashlib.sha256).hex())

    def sign_as_stock(self, command: Command, name: str) -> None:
        """Add the name and the signature that RocketMQ's servers verify."""
        command.ext = {**_without(command, SIGNATURE), ACCESS_KEY: name}
        signature = base64.b64encode(self._stock(command, _UNSIGNED)).decode()
        command.ext = {**command.ext, SIGNATURE: signature}

    def sign(self, command: Command, name: str, stamp: Stamp, body_hash: str | None = None) -> None:
        """Add the name, a stamp and our signature. `body_hash` is what the server knows, beside
        SHA-256."""
        ext = _without(command, OWN_SIGNATURE, BODY_HASH)
        if body_hash == BLAKE3 and _is_long(command) and blake3() is not None:
            ext[BODY_HASH] = BLAKE3
        command.ext = {**ext, ACCESS_KEY: name, STAMP: ":".join(map(str, stamp))}
        command.ext = {**command.ext, OWN_SIGNATURE: self._own(command).hex()}

    def is_of(self, password: str) -> bool:
        """Whether it is the key of this password; compared in constant time."""
        other = hmac.digest(password.encode(), b"", hashlib.sha256)
        return hmac.compare_digest(self._sha256.digest(), other)

    def verifies(self, command: Command) -> bool:
        """Whether the request carries a right signature. Ours counts if there is one."""
        try:
            return self._verifies(command)
        except UnicodeEncodeError:
            return False

    def _verifies(self, command: Command) -> bool:
        own = command.ext.get(OWN_SIGNATURE)
        if own is not None:
            known = command.ext.get(BODY_HASH) in (None, body_hash())
            return known and _equal(raw_bytes(own), self._own(command))
        given = _decoded(command.ext.get(SIGNATURE))
        if _equal(given, self._stock(command, _UNSIGNED)):
            return True
        # Stock clients up to 4.9.3 leave this field out; the field is set by no other code.
        return command.code == RequestCode.QUERY_MESSAGE and _equal(
            given, self._stock(command, _UNSIGNED | {_UNIQUE_KEY_QUERY})
        )

    def _stock(self, command: Command, left_out: frozenset[str]) -> bytes:
        mac = self._sha1.copy()
        for field, value in sorted(command.ext.items()):
            if field not in left_out and value is not None:
                written = text(value)
                mac.update(written.encode() if isinstance(written, str) else _packed(written))
        return _over_body(mac, command)

    def _own(self, command: Command) -> bytes:
        mac = self._sha256.copy()
        fields = [
            (field, text(value))
            for field, value in sorted(command.ext.items())
            if field != OWN_SIGNATURE and value is not None
        ]
        mac.update(_packed((command.code, fields)))
        hasher = blake3() if command.ext.get(BODY_HASH) is not None else None
        if hasher is None:
            return _over_body(mac, command)
        mac.update(_over_body(hasher(), command))
        return mac.digest()


@cache
def blake3() -> Callable[[], Hasher] | None:
    """The hash for long bodies; None where it is not installed. Imported when it is first used:
    a client that signs nothing does without."""
    try:
        from blake3 import blake3 as found  # noqa: PLC0415
    except ImportError:
        return None
    return found


def body_hash() -> str | None:
    """The hash that a server tells clients it can verify, beside SHA-256."""
    return None if blake3() is None else BLAKE3


def stamp_of(command: Command) -> Stamp | None:
    """The stamp of a request; None if it has none that can be."""
    given = command.ext.get(STAMP)
    if OWN_SIGNATURE not in command.ext or not isinstance(given, str):
        return None
    parts = given.split(":")
    if len(given) > limits.STAMP_CHARACTERS_MAX or len(parts) != len(Stamp._fields):
        return None
    nonce, count, time_ms = parts
    if not (count.isascii() and count.isdigit() and time_ms.isascii() and time_ms.isdigit()):
        return None
    return Stamp(nonce, int(count), int(time_ms))


def check_name(name: str) -> None:
    """Raise BadInput for a name that no user may have."""
    fits = 0 < len(name.encode(errors="replace")) <= limits.USER_NAME_BYTES_MAX
    if not fits or not name.isprintable() or name == CLUSTER_USER:
        raise BadInput(
            f"the user name {name[: limits.NAME_SHOWN_CHARACTERS_MAX]!r} is not 1 to "
            f"{limits.USER_NAME_BYTES_MAX} bytes of text, or is taken by the cluster itself"
        )


def _without(command: Command, *fields: str) -> dict[str, ExtValue]:
    return {name: value for name, value in command.ext.items() if name not in fields}


def _pieces(command: Command) -> tuple[Buffer, ...]:
    return command.body if isinstance(command.body, tuple) else (command.body,)


def _is_long(command: Command) -> bool:
    return sum(map(len, _pieces(command))) >= limits.LONG_BODY_BYTES


def _over_body(hasher: Hasher, command: Command) -> bytes:
    for piece in _pieces(command):
        hasher.update(piece)
    return hasher.digest()


def _packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def _equal(given: bytes, right: bytes) -> bool:
    return hmac.compare_digest(given, right)


def _decoded(value: object) -> bytes:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        return b""
