"""Planted bugs of the proofs between members: each lets a stranger in, or a wrong frame through."""

from __future__ import annotations

import hashlib
import hmac
from contextlib import AbstractContextManager
from unittest.mock import patch

from dledger.buffers import Buffer
from dledger.raft.claims import Claims
from dledger.trust import proof
from dledger.trust.proof import TAG_BYTES, Acceptor, Dialler, Door, Hello, Tags

Planted = AbstractContextManager[object]


def _derive_from(*parts: str) -> Planted:
    """Keys from these parts of the transcript only."""

    def init(self: proof._Keys, secret: bytes, door: Door, dialler: Hello, acceptor: Hello) -> None:
        fields = {
            "door": (door.name, *door.terms),
            "ids": (dialler.node_id, acceptor.node_id),
            "nonces": (dialler.nonce, acceptor.nonce),
        }
        chosen = [field for part in parts for field in fields[part]]
        self._key = hmac.digest(secret, proof.encode_fields(*chosen), hashlib.sha256)

    return patch.object(proof._Keys, "__init__", init)


def sign_no_role() -> Planted:
    """Both sides' proofs are the same, so one can be sent back."""
    return patch.object(proof, "PROOF_OF_ACCEPTOR", proof.PROOF_OF_DIALLER)


def sign_no_ids() -> Planted:
    """A proof does not say who made it, nor for whom."""
    return _derive_from("door", "nonces")


def sign_no_nonces() -> Planted:
    """A proof that was overheard once is good for ever."""
    return _derive_from("door", "ids")


def sign_no_group() -> Planted:
    """A member of one group is one of every group with that secret."""
    return _derive_from("ids", "nonces")


def prove_before_the_dialler() -> Planted:
    """The acceptor signs for any dialler, without a right proof."""

    def check(self: Acceptor, dialler: Hello, said: object) -> tuple[bytes, proof.Session]:
        keys = proof._Keys(self._secrets[0], self._door, dialler, self.hello)
        session = proof.Session(
            keys.derive(proof.KEY_OF_ACCEPTOR), keys.derive(proof.KEY_OF_DIALLER)
        )
        return keys.derive(proof.PROOF_OF_ACCEPTOR), session

    return patch.object(Acceptor, "check", check)


def take_any_acceptor() -> Planted:
    """A dialler does not check which member has answered."""
    original = Dialler.prove

    def prove(self: Dialler, acceptor: Hello, wanted_id: str) -> bytes:
        return original(self, acceptor, acceptor.node_id)

    return patch.object(Dialler, "prove", prove)


def write_fields_without_lengths() -> Planted:
    """Fields are put one behind the other, so that different ones can make the same bytes."""

    def encode(*fields: proof.Field) -> bytes:
        return b"".join(
            field if isinstance(field, bytes) else str(field).encode() for field in fields
        )

    return patch.object(proof, "encode_fields", encode)


def count_no_frames() -> Planted:
    """A frame's tag does not say which frame it is."""
    original = Tags.next

    def following(self: Tags, *parts: Buffer) -> bytes:
        self._count = 0
        return original(self, *parts)

    return patch.object(Tags, "next", following)


def one_key_for_both_directions() -> Planted:
    """A frame can be sent back to its sender."""
    return patch.object(proof, "KEY_OF_ACCEPTOR", proof.KEY_OF_DIALLER)


def check_no_tags() -> Planted:
    """Frames are taken as they come."""

    def check(self: Tags, tag: Buffer, *parts: Buffer) -> None:
        assert len(tag) == TAG_BYTES

    return patch.object(Tags, "check", check)


def believe_every_claim() -> Planted:
    """Any term is believed, and any node may be the leader of a term."""
    return patch.object(Claims, "check", lambda self, node_id, message: None)
