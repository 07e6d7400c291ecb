"""The integers of the wire, each with its width. They are checked as a header or a body is decoded,
before anything is done with it.

RocketMQ's are Java's: 32 or 64 bits, signed. A record in the log has the same widths, so what was
decoded can be stored. A text header can spell any number; one that is too wide for its field is
refused as RocketMQ refuses it, with SYSTEM_ERROR and the field's name. The handler checks
everything else (an offset below a queue's end, a permission that exists).
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

INT32_MIN: Final = -(1 << 31)
INT32_MAX: Final = (1 << 31) - 1
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

#: Queue ids, counts, flags: RocketMQ's `int`.
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=INT32_MIN, le=INT32_MAX)]
#: Offsets, positions, indexes, terms, milliseconds: RocketMQ's `long`.
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]
#: A TCP port that can be connected to.
Port: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65_535)]


def is_number(text: str, digits_max: int) -> bool:
    """Whether a text is ASCII digits alone, and at most so many: `int` takes other digits, too, and
    long for thousands of them."""
    return text.isascii() and text.isdigit() and len(text) <= digits_max
