"""A user's password as logs, snapshots and copies of replicas hold it: wrapped. Pure.

Signatures need the password itself, so it can't be hashed. It is encrypted with a key that follows
from the cluster's secret, and authenticated together with the user's name. The nonce follows from
both (as in SIV, RFC 5297), so that groups with equal users have equal tables, and can be compared.
Whoever has the secret can unwrap it: so can a server, and whoever reads its secretFile.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

from dledger.errors import BadInput

_TAG_BYTES: Final = 16
_BLOCK_BYTES: Final = 32


class Wrapping:
    """Wraps and unwraps with one secret."""

    def __init__(self, secret: bytes) -> None:
        self._tag_key, self._stream_key = (
            hmac.digest(secret, b"dledger users: " + label, hashlib.sha256)
            for label in (b"tag", b"stream")
        )

    def wrap(self, name: str, password: str) -> bytes:
        """The password of a user as it is kept."""
        plain = password.encode()
        tag = self._tag(name, plain)
        return tag + self._masked(tag, plain)

    def unwrap(self, name: str, wrapped: bytes) -> str:
        """The password of a user, unwrapped. Raises BadInput if another secret has wrapped it, or
        it was changed."""
        tag, hidden = wrapped[:_TAG_BYTES], wrapped[_TAG_BYTES:]
        plain = self._masked(tag, hidden)
        if not hmac.compare_digest(tag, self._tag(name, plain)):
            raise BadInput(
                f"the password of user {name!r} can't be read with this cluster's secret: set it "
                "again (mqadmin updateUser -p)"
            )
        return plain.decode()

    def _tag(self, name: str, plain: bytes) -> bytes:
        named = name.encode()
        whole = len(named).to_bytes(4, "big") + named + plain
        return hmac.digest(self._tag_key, whole, hashlib.sha256)[:_TAG_BYTES]

    def _masked(self, tag: bytes, data: bytes) -> bytes:
        blocks = range(-(-len(data) // _BLOCK_BYTES))
        stream = b"".join(
            hmac.digest(self._stream_key, tag + block.to_bytes(4, "big"), hashlib.sha256)
            for block in blocks
        )
        return bytes(one ^ other for one, other in zip(data, stream, strict=False))
