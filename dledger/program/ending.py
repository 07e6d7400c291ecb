"""How a command ends when its input can't be used: a status, and one line that says why.

A wrong argument or file is the user's to mend: it gets a sentence, not a traceback. A traceback
means a bug of the program.
"""

from __future__ import annotations

import os
from typing import Final

from dledger.errors import DledgerError
from dledger.observe import one_line

#: Errors that input can raise. A nesting that is too deep for a parser is a RecursionError.
BY_INPUT: Final = (DledgerError, OSError, RecursionError, UnicodeError, OverflowError)


def sentence(error: BaseException) -> str:
    """A line of text that describes an error."""
    if isinstance(error, OSError) and error.filename is not None and error.errno is not None:
        text = f"{os.fsdecode(error.filename)!s}: {os.strerror(error.errno)}"
    elif isinstance(error, RecursionError):
        text = "something in it is nested too deeply to be read"
    else:
        text = str(error) or type(error).__name__
    return one_line(" ".join(text.split()))
