"""How long a certificate in a PEM file is valid. Pure.

`ssl` tells the dates of the other end's certificate alone. Those of one's own are the fifth field
of its DER, at a place that follows from the lengths of the fields before it.
"""

from __future__ import annotations

import binascii
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

_PEM: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----\s*([A-Za-z0-9+/=\s]+?)-----END CERTIFICATE-----"
)
_VERSION_TAG: Final = 0xA0
_SHORT_YEARS_TAG: Final = 0x17
_LONG_FORM: Final = 0x80
_BEFORE_VALIDITY: Final = 3
"""Serial number, algorithm, issuer."""


class Validity(NamedTuple):
    """The beginning and the end of a certificate's validity, in Unix seconds."""

    begins_s: float
    ends_s: float


def first_validity(pem: str) -> Validity | None:
    """The validity of the first certificate in a PEM text; None if it can't be read."""
    found = _PEM.search(pem)
    if found is None:
        return None
    try:
        return _validity(binascii.a2b_base64(found.group(1)))
    except (ValueError, IndexError):
        return None


def _validity(der: bytes) -> Validity:
    certificate = _content(der, 0)
    fields = _content(certificate, 0)
    at = _end(fields, 0) if fields[0] == _VERSION_TAG else 0
    for _ in range(_BEFORE_VALIDITY):
        at = _end(fields, at)
    dates = _content(fields, at)
    return Validity(_seconds(dates, 0), _seconds(dates, _end(dates, 0)))


def _head(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the value at `at` begins, and its length."""
    length = der[at + 1]
    if length < _LONG_FORM:
        return at + 2, length
    count = length - _LONG_FORM
    return at + 2 + count, int.from_bytes(der[at + 2 : at + 2 + count], "big")


def _content(der: bytes, at: int) -> bytes:
    begin, length = _head(der, at)
    return der[begin : begin + length]


def _end(der: bytes, at: int) -> int:
    begin, length = _head(der, at)
    return begin + length


def _seconds(der: bytes, at: int) -> float:
    text = _content(der, at).decode("ascii")
    if der[at] == _SHORT_YEARS_TAG:
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
