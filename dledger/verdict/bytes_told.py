"""Bytes as people read them: sixteen a line, with their position, in hex and as text. Pure."""

from __future__ import annotations

from typing import Final

_LINE_BYTES: Final = 16


def dump(data: bytes, position: int) -> str:
    """A hex dump whose first byte has `position`."""
    return "\n".join(
        _line(data[at : at + _LINE_BYTES], position + at) for at in range(0, len(data), _LINE_BYTES)
    )


def _line(some: bytes, position: int) -> str:
    pairs = some.hex(" ")
    halves = f"{pairs[:23]:<23}  {pairs[24:]:<23}"
    text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in some)
    return f"{position:>10}  {halves}  {text}"
