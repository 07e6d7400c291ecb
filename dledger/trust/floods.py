"""Bounds how many wrong signatures and passwords one address may have verified. Pure.

Each wrong one is a debt of its address, large requests' a greater one, as more was hashed for them.
A debt shrinks with time. Above the bound, nothing more of that address is verified until the debt
has shrunk, and nobody can try passwords fast. Even a refusal costs something, so refusals have a
rate, too: beyond it, the address's connections rest after each one. So a flood costs the server
next to nothing. An IPv6 network of 64 bits counts as one address, and all of this machine as one.
"""

from __future__ import annotations

from typing import Final

from dledger.addresses import origin_of
from dledger.limits import (
    UNKNOWN_REFUSED_AT_ONCE_S,
    UNKNOWN_REFUSED_PER_S,
    UNKNOWN_REST_S_MAX,
    WRONG_PROOF_BYTES,
    WRONG_PROOFS_AT_ONCE,
    WRONG_PROOFS_ORIGINS_MAX,
    WRONG_PROOFS_PER_S,
)

_EACH_MS: Final = 1000 / WRONG_PROOFS_PER_S
_MOST_MS: Final = WRONG_PROOFS_AT_ONCE * _EACH_MS
_OTHERS: Final = "others"
"""The place of origins for whom there is no room."""


class Floods:
    """Debts of addresses that sent wrong proofs, in ms, for a bounded number of addresses."""

    def __init__(self) -> None:
        #: When each debt will be gone, in ms.
        self._paid_at: dict[str, float] = {}
        #: When what was refused of each is as old as its rate wants, in ms.
        self._next_at: dict[str, float] = {}

    def wrong(self, address: str, size_bytes: int, now_ms: float) -> None:
        """Count what was verified and found wrong."""
        origin = _origin(address)
        if origin not in self._paid_at and len(self._paid_at) >= WRONG_PROOFS_ORIGINS_MAX:
            self._forget_paid(now_ms)
            if len(self._paid_at) >= WRONG_PROOFS_ORIGINS_MAX:
                origin = _OTHERS
        debt_ms = self._debt_ms(origin, now_ms) + _EACH_MS * (1 + size_bytes // WRONG_PROOF_BYTES)
        self._paid_at[origin] = now_ms + min(debt_ms, 2 * _MOST_MS)

    def waits_s(self, address: str, now_ms: float) -> float:
        """Seconds for which nothing of an address is verified; 0 if it is."""
        origin = _origin(address)
        if origin not in self._paid_at and len(self._paid_at) > WRONG_PROOFS_ORIGINS_MAX:
            origin = _OTHERS
        return max(0.0, self._debt_ms(origin, now_ms) - _MOST_MS + _EACH_MS) / 1000

    def rest_s(self, address: str, now_ms: float) -> float:
        """A request of an address is refused: for how long its connection rests then."""
        origin = _origin(address)
        if origin not in self._next_at and len(self._next_at) >= WRONG_PROOFS_ORIGINS_MAX:
            self._next_at = {each: at for each, at in self._next_at.items() if at > now_ms}
            if len(self._next_at) >= WRONG_PROOFS_ORIGINS_MAX:
                origin = _OTHERS
        ahead_s = max(0.0, self._next_at.get(origin, now_ms) - now_ms) / 1000
        ahead_s = min(ahead_s, UNKNOWN_REFUSED_AT_ONCE_S + UNKNOWN_REST_S_MAX)
        self._next_at[origin] = now_ms + 1000 * (ahead_s + 1 / UNKNOWN_REFUSED_PER_S)
        return max(0.0, ahead_s - UNKNOWN_REFUSED_AT_ONCE_S)

    def _debt_ms(self, origin: str, now_ms: float) -> float:
        """The present debt of an address. A clock that was set back makes none larger than it can
        be."""
        return min(max(0.0, self._paid_at.get(origin, now_ms) - now_ms), 2 * _MOST_MS)

    def _forget_paid(self, now_ms: float) -> None:
        paid = [origin for origin in self._paid_at if not self._debt_ms(origin, now_ms)]
        for origin in paid:
            del self._paid_at[origin]


def _origin(address: str) -> str:
    return origin_of(address) or "this machine"
