"""Bounds for addresses that send wrong signatures or passwords."""

from __future__ import annotations

import random

from dledger.limits import (
    FRAME_BYTES_MAX,
    UNKNOWN_REFUSED_PER_S,
    UNKNOWN_REST_S_MAX,
    WRONG_PROOF_BYTES,
    WRONG_PROOFS_AT_ONCE,
    WRONG_PROOFS_ORIGINS_MAX,
    WRONG_PROOFS_PER_S,
)
from dledger.trust.floods import Floods


def verified(floods: Floods, address: str, tries: int, now_ms: float, size_bytes: int = 0) -> int:
    """The number of wrong proofs, of `count` at this time, that are verified."""
    count = 0
    for _ in range(tries):
        if not floods.waits_s(address, now_ms):
            floods.wrong(address, size_bytes, now_ms)
            count += 1
    return count


def test_an_address_has_its_own_pace() -> None:
    """An address may send a burst of wrong proofs, then some a second, apart from others."""
    floods = Floods()
    assert verified(floods, "10.0.0.1", 1000, 0) == WRONG_PROOFS_AT_ONCE
    assert verified(floods, "10.0.0.1", 1000, 1000) == WRONG_PROOFS_PER_S
    assert verified(floods, "10.0.0.2", 1000, 1000) == WRONG_PROOFS_AT_ONCE
    assert verified(floods, "::1", 1000, 0) == WRONG_PROOFS_AT_ONCE
    assert verified(floods, "127.0.0.2", 1000, 0) == 0


def test_large_requests_count_by_what_is_hashed() -> None:
    """Requests count by the bytes that are hashed, in any mix of sizes."""
    rng, floods, hashed, now_ms = random.Random(1), Floods(), 0, 0.0
    for _ in range(5000):
        size = rng.choice((0, 100, WRONG_PROOF_BYTES, FRAME_BYTES_MAX))
        now_ms += rng.random() * 10
        hashed += size * verified(floods, f"2001:db8::{rng.randrange(9999):x}", 1, now_ms, size)
    allowed = WRONG_PROOFS_AT_ONCE + WRONG_PROOFS_PER_S * now_ms / 1000
    assert hashed <= 2 * WRONG_PROOF_BYTES * allowed + FRAME_BYTES_MAX


def test_refusals_of_an_address_have_a_pace() -> None:
    """An address is refused at a bounded rate, over any number of connections."""
    floods, now_ms, asks_at = Floods(), 1e12, dict.fromkeys(range(100), 1e12)
    refused = 0
    while now_ms < 1e12 + 2000:
        number = min(asks_at, key=asks_at.__getitem__)
        now_ms = asks_at[number]
        asks_at[number] += 1000 * floods.rest_s("10.0.0.1", now_ms) + 0.1
        refused += 1
    assert 0.9 < refused / (3 * UNKNOWN_REFUSED_PER_S) < 1.1
    assert floods.rest_s("10.0.0.2", now_ms) == 0
    assert floods.rest_s("10.0.0.1", now_ms + 1000 * UNKNOWN_REST_S_MAX) == 0
    assert 0 < floods.rest_s("10.0.0.1", 0) <= UNKNOWN_REST_S_MAX, "a clock was set back"


def test_the_table_of_refusals_is_bounded() -> None:
    """Addresses beyond it share one pace, until others have none."""
    floods = Floods()
    for number in range(WRONG_PROOFS_ORIGINS_MAX + UNKNOWN_REFUSED_PER_S + 1):
        floods.rest_s(f"a{number}", 0)
    assert floods.rest_s("b", 0) > 0
    assert floods.rest_s("c", 60_000) == 0
    assert floods.rest_s("d", 60_000) == 0


def test_a_wait_ends_when_it_says() -> None:
    """A wait ends at its time, within twice the bound also after a clock was set back."""
    floods = Floods()
    assert verified(floods, "10.0.0.1", 1, 9e12, FRAME_BYTES_MAX) == 1
    longest_s = 2 * WRONG_PROOFS_AT_ONCE / WRONG_PROOFS_PER_S
    for now_ms in (9e12, 0.0):
        wait_s = floods.waits_s("10.0.0.1", now_ms)
        assert 0 < wait_s <= longest_s
    assert floods.waits_s("10.0.0.1", 9e12 + longest_s * 1000) == 0


def test_the_table_is_bounded() -> None:
    """Addresses beyond it share one debt, until others are paid."""
    floods = Floods()
    for number in range(WRONG_PROOFS_ORIGINS_MAX):
        verified(floods, f"a{number}", 2, 0)
    assert verified(floods, "b", 1000, 0) == WRONG_PROOFS_AT_ONCE
    assert verified(floods, "c", 1000, 0) == 0
    assert verified(floods, "c", 1000, 60_000) == WRONG_PROOFS_AT_ONCE
    assert verified(floods, "d", 1000, 60_000) == WRONG_PROOFS_AT_ONCE
