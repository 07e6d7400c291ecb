"""How a command ends when what it was given can't be used: a status, and one line that says why.

Whatever a person typed, and whatever lies in the files that they named, is theirs to mend: they
get a sentence, not a trace. A trace means a bug of the program.
"""

from __future__ import annotations

import os
from typing import Final

from dledger.errors import DledgerError

#: What input can raise. A nesting that is too deep for a parser is a RecursionError.
BY_INPUT: Final = (DledgerError, OSError, RecursionError, UnicodeError, OverflowError)


def sentence(error: BaseException) -> str:
    """One line of text that says what is wrong."""
    if isinstance(error, OSError) and error.filename is not None and error.errno is not None:
        text = f"{os.fsdecode(error.filename)!s}: {os.strerror(error.errno)}"
    elif isinstance(error, RecursionError):
        text = "something in it is nested too deeply to be read"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())
