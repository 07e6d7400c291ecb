"""The words of a condition: keywords, names, numbers, strings and signs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from dledger.errors import BadInput

_WORDS: Final = "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH"
KEYWORDS: Final = frozenset(_WORDS.split(" "))
_TOKEN: Final = re.compile(
    r"""
      (?P<space>   [ \t\r\n\f]+ | --[^\r\n]* | /\*.*?\*/ )
    | (?P<number>  (?: [0-9]+\.[0-9]* | \.[0-9]+ | [0-9]+ (?=[eE]) ) (?: [eE][+-]?[0-9]+ )?
                 | (?: 0 | [1-9][0-9]* ) [lL]? )
    | (?P<string>  ' (?: [^'] | '' )* ' )
    | (?P<word>    [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<sign>    <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A token of an SQL expression. `kind` is "number", "string", "name", "end", or the keyword or
    sign itself.

    `text` is as written, but for a string its content. `at` is its first character, from 0.
    """

    kind: str
    text: str
    at: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens of an expression, then one of kind "end". Raises BadInput for other characters."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadInput(f"character {at}: {text[at : at + 20]!r} begins no word, number or sign")
        kind, written = match.lastgroup, match[0]
        if kind == "word":
            keyword = written.upper()
            yield Token(keyword if keyword in KEYWORDS else "name", written, at)
        elif kind == "string":
            yield Token("string", written[1:-1].replace("''", "'"), at)
        elif kind == "number":
            yield Token("number", written, at)
        elif kind == "sign":
            yield Token(written, written, at)
        at = match.end()
    yield Token("end", "", at)
