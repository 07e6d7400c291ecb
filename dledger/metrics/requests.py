"""A request for figures, and an answer to it, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from dledger.errors import BadInput
from dledger.metrics import limits

PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page of figures. `source`: the address that it came from; `values`: those of
    its query; `encrypted`: whether it came by TLS; `certified`: whether with a valid
    certificate."""

    path: str
    source: str
    authorization: str = ""
    values: Mapping[str, list[str]] = field(default_factory=dict)
    encrypted: bool = False
    certified: bool = False

    @classmethod
    def of(
        cls,
        target: str,
        source: str,
        authorization: str,
        *,
        encrypted: bool = False,
        certified: bool = False,
    ) -> Asked:
        """Take a request's target apart. Raises ValueError for one that can't be read."""
        parts = urlsplit(target)
        values = parse_qs(parts.query, max_num_fields=2 * limits.NAMES_ASKED_MAX)
        return cls(parts.path, source, authorization, values, encrypted, certified)


class NoSuchName(BadInput):
    """A request for details names only topics, or only groups, that do not exist here."""


class Answer(NamedTuple):
    """An answer: a status, a body, and its type. `challenge`: how to prove who asks; `keeps`:
    whether another request may follow over the connection."""

    status: int
    body: bytes
    content_type: str = PLAIN
    challenge: str = ""
    keeps: bool = False

    @classmethod
    def text(cls, status: int, line: str) -> Answer:
        """An answer of one line."""
        return cls(status, f"{line}\n".encode())
