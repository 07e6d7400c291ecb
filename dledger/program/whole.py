"""Whole numbers on a command line: digits, with a sign or without.

The library that reads command lines rounds `1.5` to 2, and takes `0x10` and `1_000`. A number that
is changed on its way is a setting that nobody asked for, so anything else than digits is refused.
`tests/unit/client/test_command_lines.py` holds that each command takes its whole numbers so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter, Token

_DIGITS = re.compile(r"[+-]?[0-9]{1,19}")


def _whole(_: type, tokens: Sequence[Token]) -> int:
    """The number; a ValueError becomes an error that names the option."""
    text = tokens[0].value
    if not _DIGITS.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number of at most 19 digits")
    return int(text)


Whole = Annotated[int, Parameter(converter=_whole)]
