"""Messages of a queue as bits: one for each, from a first offset on. Pure."""

from __future__ import annotations

from collections.abc import Iterator


def lowest_bit(bits: int) -> int:
    """The number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1


def offsets_in(base: int, bits: int) -> Iterator[int]:
    """The offsets whose bits are set."""
    while bits:
        number = lowest_bit(bits)
        yield base + number
        bits &= bits - 1


def bits_to_bytes(bits: int) -> bytes:
    """Bits as entries and snapshots hold them: the first byte has the first eight messages."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def bits_from_bytes(data: bytes) -> int:
    """Integer of the bits that `bits_to_bytes` wrote."""
    return int.from_bytes(data, "little")
