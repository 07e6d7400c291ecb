"""The secrets that are valid at one server, and when others may take their place. Pure.

A cluster's secret is replaced without a stop by having two for a time. The first one is what
a server wraps passwords with, and what tools sign with; each one is accepted. Two servers that have
any secret in common let each other in, since each offers proofs by all of its secrets. So all
servers go through these steps, one after the other in any order::

    old  ->  old, new  ->  new, old  ->  new

Two neighbours in this row serve each other; others may not. A server learns from the others, by
their proofs, which secrets they have and which is their first (`Heard`). It takes over secrets only
if each of the others has the new first one, and the first one of each other stays valid here: then
nobody is more than a step away. And each user's password must stay readable.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final, NamedTuple

from dledger.errors import ConfigError
from dledger.limits import SECRET_CHARACTERS_MIN, SECRETS_MAX

HOW_TO_ROLL: Final = "docs/how-to/secure.md has the steps"


class Secrets:
    """The secrets that are valid now. All code of a server that proves or verifies shares it."""

    def __init__(self, *valid: bytes) -> None:
        #: In the order of the file; none if the server has no secret.
        self.valid = tuple(filter(None, valid))

    def __bool__(self) -> bool:
        return bool(self.valid)

    def __repr__(self) -> str:
        return f"<Secrets {', '.join(map(shown, self.valid))}>"

    @classmethod
    def of(cls, given: bytes | Secrets) -> Secrets:
        """Secrets of one secret, or those that are shared already."""
        return given if isinstance(given, Secrets) else cls(given)

    @property
    def first(self) -> bytes:
        """The secret for signing and wrapping; empty if there is none."""
        return self.valid[0] if self.valid else b""

    @property
    def proven(self) -> tuple[bytes, ...]:
        """The secrets for proofs: the empty secret where there is none."""
        return self.valid or (b"",)


def parse(text: str, where: str) -> tuple[bytes, ...]:
    """The secrets in a text: one, or two with an empty line between them. Raises ConfigError."""
    found = [part.strip() for part in _paragraphs(text)]
    if len(found) > SECRETS_MAX:
        raise ConfigError(f"{where} has {len(found)} secrets, above {SECRETS_MAX}; {HOW_TO_ROLL}")
    for secret in found or [""]:
        if len(secret) < SECRET_CHARACTERS_MIN:
            raise ConfigError(
                f"{where} has a secret of {len(secret)} characters, fewer than "
                f"{SECRET_CHARACTERS_MIN}"
            )
    if len(set(found)) < len(found):
        raise ConfigError(f"{where} has the same secret twice")
    return tuple(secret.encode() for secret in found)


def _paragraphs(text: str) -> Iterable[str]:
    lines: list[str] = []
    for line in [*text.split("\n"), ""]:
        if line.strip():
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []


def shown(secret: bytes) -> str:
    """A name of a secret that says nothing of it: for logs."""
    return hmac.digest(secret, b"dledger name of a secret", hashlib.sha256).hex()[:8]


class Heard(NamedTuple):
    """The answer of another server. `has`: which of the secrets that it was offered it has, in its
    own order; None if it has not answered."""

    name: str
    has: tuple[bytes, ...] | None
    problem: str = ""


def refusal(
    present: tuple[bytes, ...],
    wanted: tuple[bytes, ...],
    others: Iterable[Heard],
    unreadable: Iterable[str],
) -> str | None:
    """Why `wanted` can't take the place of `present` yet; None if it can. `unreadable`: users
    whose passwords no wanted secret unwraps."""
    if not set(present) & set(wanted):
        return (
            "it has none of the secrets that are in use: keep the old one, and add the new one "
            f"below an empty line; {HOW_TO_ROLL}"
        )
    for other in others:
        reason = _reason(wanted, other)
        if reason is not None:
            return reason
    users = sorted(unreadable)
    if users:
        return (
            f"{len(users)} users, {users[0]!r} the first, have passwords that only a secret that "
            "would go can read: the leader wraps them again when the new secret is its first one"
        )
    return None


def _reason(wanted: tuple[bytes, ...], other: Heard) -> str | None:
    if other.has is None:
        return (
            f"{other.name} does not answer ({other.problem}): it may lack the secret. A restart "
            "takes over the file without asking the others"
        )
    if wanted[0] not in other.has:
        return (
            f"{other.name} does not have the first secret ({shown(wanted[0])}) yet: add it there "
            "as the second one first"
        )
    if other.has[0] not in wanted:
        return (
            f"{other.name} still has as its first secret one that would go "
            f"({shown(other.has[0])}): put the new one first there"
        )
    return None
