"""How two servers of ours prove to each other that they know one secret. Pure: no sockets.

One side dials, the other accepts. Both send their id and a nonce, and from then on each has the
same *transcript*: the door (what the connection is for), the terms that both must agree on (the
group, the format), the dialler's id and nonce, the acceptor's id and nonce, in this order. Every
field is written with its type and its length, so no two transcripts have the same bytes. The secret
and the transcript give a key that nobody else and no other connection has. From that key come the
dialler's proof, the acceptor's proof, one key for the frames in each direction.

Why a stranger gains nothing (Dolev and Yao's stranger: it reads, keeps, changes and invents
messages):

- *The dialler proves first, and the acceptor answers only a right proof.* So no stranger can have
  an acceptor sign something. A dialler signs only what begins with its own id, its own nonce and
  the id of the node that it wants to reach, and only as a dialler.
- *Reflection*: one side's proof is no proof for the other, since each contains the role.
- *Relay*: a stranger between two members may pass on their messages. It gets no key by that, so it
  can do no more than a wire. If it changes an id, the two transcripts differ, and no proof fits.
- *Replay*: the nonces of both are fresh, so an old proof fits no new transcript, and an old
  connection's frame no new key. Within a connection both ends count the frames: the tag of a frame
  that is repeated, left out, reordered, sent back, or changed does not fit.
- *Another group, door or version*: part of the transcript.

Frames are not encrypted: this proves who sent them, and hides nothing. If they must stay secret,
use a trusted network or a tunnel. TLS could replace this module: it would give the same
:class:`Session` a stream that needs no tags.

The secret must be random: a stranger that is dialled gets a proof, and can test guesses on it.

While a cluster's secret is replaced a side has two (`rolling`). Then a proof is one by each, one
behind the other. The acceptor answers with proofs by those that it has, too, in its own order, and
the first of these gives the session's keys. A wire that takes one of the proofs away leaves the
other, of a secret that both hold valid.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from dledger import limits
from dledger.buffers import Buffer
from dledger.errors import FrameError
from dledger.trust.rolling import Secrets

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
TAG_BYTES: Final = 16
"""Bytes of a truncated HMAC-SHA-256: the usual length of a MAC (RFC 2104 wants at least ten)."""
_COUNT_BYTES: Final = 8

Field = str | int | bytes


def encode_fields(*fields: Field) -> bytes:
    """Encode fields so that no other fields have the same bytes: each as type, length and value."""
    parts = []
    for field in fields:
        if isinstance(field, str):
            kind, raw = b"s", field.encode()
        elif isinstance(field, bytes):
            kind, raw = b"b", field
        else:
            kind, raw = b"i", b"%d" % field
        parts += [kind, len(raw).to_bytes(4, "big"), raw]
    return b"".join(parts)


class Hello(NamedTuple):
    """The id that a side claims, and its nonce."""

    node_id: str
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Door:
    """The purpose of a proof. `name` tells our doors apart; `terms` are what both must agree on."""

    name: str
    terms: tuple[Field, ...]


class Session(NamedTuple):
    """The keys after a handshake: one for what this end sends, one for what it receives."""

    sending_key: bytes
    receiving_key: bytes


def check_hello(node_id: object, nonce: object) -> Hello:
    """A hello's fields, of the types and sizes that they must have. Raises FrameError."""
    bytes_max = limits.NODE_ID_BYTES_MAX
    if not isinstance(node_id, str) or not 0 < len(node_id) <= bytes_max or not _is_shown(node_id):
        raise FrameError(f"node id {str(node_id)[:80]!r} is not 1 to {bytes_max} bytes of text")
    if not isinstance(nonce, bytes) or len(nonce) != NONCE_BYTES:
        raise FrameError(f"the hello's nonce is not {NONCE_BYTES} bytes")
    return Hello(node_id, nonce)


def _is_shown(text: str) -> bool:
    """Whether a text can be written, and be read in a line of a log."""
    try:
        return len(text.encode()) <= limits.NODE_ID_BYTES_MAX and text.isprintable()
    except UnicodeEncodeError:
        return False


class _Keys:
    """All that follows from a secret and a transcript (HKDF, RFC 5869: extract, then expand)."""

    def __init__(self, secret: bytes, door: Door, dialler: Hello, acceptor: Hello) -> None:
        transcript = encode_fields("dledger", door.name, *door.terms, *dialler, *acceptor)
        self._key = hmac.digest(secret, transcript, hashlib.sha256)

    def derive(self, label: str) -> bytes:
        """The key or proof of that name. Labels are of one fixed set, so they need no length."""
        return hmac.digest(self._key, label.encode(), hashlib.sha256)


class Dialler:
    """The side that begins: it sends `hello`, then the proof of `prove`, then `check`s the
    answer."""

    def __init__(self, door: Door, node_id: str, secret: bytes | Secrets, nonce: bytes) -> None:
        self.hello = Hello(node_id, nonce)
        self._door = door
        self._secrets = Secrets.of(secret).proven
        self._acceptor: Hello | None = None
        #: Once checked: those of this side's secrets that the other has, in the order there.
        self.shared: tuple[bytes, ...] = ()

    def prove(self, acceptor: Hello, wanted_id: str) -> bytes:
        """The proof for the acceptor that has answered. Raises FrameError if it is another one."""
        if acceptor.node_id != wanted_id:
            raise FrameError(f"node {acceptor.node_id!r} answers at the address of {wanted_id!r}")
        self._acceptor = acceptor
        return b"".join(keys.derive(PROOF_OF_DIALLER) for keys in self._keys.values())

    @property
    def _keys(self) -> dict[bytes, _Keys]:
        acceptor = self._acceptor
        assert acceptor is not None, "the acceptor has not said hello"
        return {each: _Keys(each, self._door, self.hello, acceptor) for each in self._secrets}

    def check(self, proof: object) -> Session:
        """The session, if the acceptor's proof is right. Raises FrameError."""
        keys = self._keys
        assert self._acceptor is not None
        right = {secret: each.derive(PROOF_OF_ACCEPTOR) for secret, each in keys.items()}
        self.shared = tuple(
            next(secret for secret, known in right.items() if hmac.compare_digest(known, said))
            for said in _right_ones(proof, right.values(), self._acceptor.node_id)
        )
        agreed = keys[self.shared[0]]
        return Session(agreed.derive(KEY_OF_DIALLER), agreed.derive(KEY_OF_ACCEPTOR))


class Acceptor:
    """The side that was dialled: it sends `hello`, and proves only to a dialler that has proven."""

    def __init__(self, door: Door, node_id: str, secret: bytes | Secrets, nonce: bytes) -> None:
        self.hello = Hello(node_id, nonce)
        self._door = door
        self._secrets = Secrets.of(secret).proven

    def check(self, dialler: Hello, proof: object) -> tuple[bytes, Session]:
        """Proof of this side, and the session, if the dialler's proof is right. Raises
        FrameError."""
        keys = [_Keys(each, self._door, dialler, self.hello) for each in self._secrets]
        said = _right_ones(proof, [each.derive(PROOF_OF_DIALLER) for each in keys], dialler.node_id)
        shared = [each for each in keys if each.derive(PROOF_OF_DIALLER) in said]
        agreed = shared[0]
        session = Session(agreed.derive(KEY_OF_ACCEPTOR), agreed.derive(KEY_OF_DIALLER))
        return b"".join(each.derive(PROOF_OF_ACCEPTOR) for each in shared), session


PROOF_OF_DIALLER: Final = "proof of the dialler"
PROOF_OF_ACCEPTOR: Final = "proof of the acceptor"
KEY_OF_DIALLER: Final = "frames of the dialler"
KEY_OF_ACCEPTOR: Final = "frames of the acceptor"


def _right_ones(proof: object, right: Iterable[bytes], node_id: str) -> list[bytes]:
    """The other side's proofs that are right, in its order; at least one.
    Raises FrameError."""
    whole = proof if isinstance(proof, bytes) else b""
    said = [whole[at : at + PROOF_BYTES] for at in range(0, len(whole), PROOF_BYTES)]
    known = list(right)
    found = [
        each
        for each in said[: limits.PROOFS_MAX]
        # Each is compared with each: how long it takes says nothing.
        if sum([hmac.compare_digest(each, one) for one in known])
    ]
    is_whole = len(whole) % PROOF_BYTES == 0 and len(said) <= limits.PROOFS_MAX
    if not found or not is_whole or len(set(found)) < len(found):
        raise FrameError(f"node {node_id!r} does not know the group's secret")
    return found


class Tags:
    """The tags of one direction's frames, in order: HMAC-SHA-256 over the frame's number and bytes.

    Both ends count for themselves, so the number takes no room on the wire. A frame must tell its
    own length, or be one whose parts were written by `encode_fields`.
    """

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod=hashlib.sha256)
        self._count = 0

    def next(self, *parts: Buffer) -> bytes:
        """The tag of the next frame, given in parts."""
        mac = self._keyed.copy()
        mac.update(self._count.to_bytes(_COUNT_BYTES, "big"))
        for part in parts:
            mac.update(part)
        self._count += 1
        return mac.digest()[:TAG_BYTES]

    def check(self, tag: Buffer, *parts: Buffer) -> None:
        """Raise FrameError unless this is the tag of the next frame."""
        if not hmac.compare_digest(tag, self.next(*parts)):
            raise FrameError(
                f"frame {self._count - 1} of this connection does not match its tag: it was "
                "changed on the way, or is not the one that was sent in this place"
            )
