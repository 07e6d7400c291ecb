"""How a JSON body is written, in which dialect, and how it is read whatever the dialect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Any, ClassVar, TypeVar

import msgspec

from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.limits import (
    CLIENT_BODY_BYTES_MAX,
    CLIENT_LOOSE_BODY_BYTES_MAX,
    FRAME_BYTES_MAX,
    LOOSE_BODY_BYTES_MAX,
    REGISTRATION_LOOSE_BODY_BYTES_MAX,
    TOOL_BODY_BYTES_MAX,
)
from dledger.remoting.json_dialect import parse, write_loose, write_standard, written_steps

BodyT = TypeVar("BodyT")


class Dialect(Enum):
    """How a body is written."""

    STANDARD = "standard"
    LOOSE = "loose"


class Body(msgspec.Struct, rename="camel", omit_defaults=False):
    """Base of the JSON bodies. Reading one takes time, so its size is bounded."""

    bytes_max: ClassVar[int] = FRAME_BYTES_MAX
    loose_bytes_max: ClassVar[int] = LOOSE_BODY_BYTES_MAX


class ToolBody(Body):
    """Base of those by which tools change very much at once."""

    bytes_max: ClassVar[int] = TOOL_BODY_BYTES_MAX
    loose_bytes_max: ClassVar[int] = CLIENT_LOOSE_BODY_BYTES_MAX


class RegistrationBody(Body):
    """Base of what brokers register. In the loose dialect only stock brokers with static topics
    write it."""

    loose_bytes_max: ClassVar[int] = REGISTRATION_LOOSE_BODY_BYTES_MAX


class ClientBody(Body):
    """Base of those that any client may send."""

    bytes_max: ClassVar[int] = CLIENT_BODY_BYTES_MAX
    loose_bytes_max: ClassVar[int] = CLIENT_LOOSE_BODY_BYTES_MAX


def encode_body(body: msgspec.Struct, dialect: Dialect = Dialect.STANDARD) -> bytes:
    """Encode `body` as JSON. Stock clients expect maps keyed by queues in the loose dialect."""
    if dialect is Dialect.LOOSE:
        return write_loose(body)
    return write_standard(body)


def encode_steps(body: msgspec.Struct, dialect: Dialect = Dialect.STANDARD) -> Iterator[bytes]:
    """Write `body` in short steps, for one that is long: joined, the pieces are the body."""
    return written_steps(body, loose=dialect is Dialect.LOOSE)


def decode_body(body_type: type[BodyT], data: Buffer) -> BodyT:
    """Read a body in either dialect.

    Raises BadInput naming the member that is missing or of the wrong kind.
    """
    bytes_max, loose_bytes_max = _bounds(body_type)
    if len(data) > bytes_max:
        raise BadInput(f"a {body_type.__name__} of {len(data)} bytes is above {bytes_max}")
    decoder = _standard_decoder(body_type)
    if decoder is not None:
        # If this fails, the slow reader decides: it knows the loose dialect and null members.
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return decoder.decode(data)
    if len(data) > loose_bytes_max:
        raise BadInput(
            f"a {body_type.__name__} of {len(data)} bytes that is not standard JSON "
            f"is above {loose_bytes_max}"
        )
    document = parse(data)
    try:
        return msgspec.convert(document, body_type, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise BadInput(f"the body is not a {body_type.__name__}: {error}") from error


def _bounds(body_type: type) -> tuple[int, int]:
    """The most bytes of a body, and of one in the loose dialect."""
    if issubclass(body_type, Body):
        return body_type.bytes_max, body_type.loose_bytes_max
    return FRAME_BYTES_MAX, LOOSE_BODY_BYTES_MAX


_standard_decoders: dict[type, msgspec.json.Decoder[Any] | None] = {}


def _standard_decoder(body_type: type[BodyT]) -> msgspec.json.Decoder[BodyT] | None:
    """A fast decoder, or None for bodies with maps keyed by queues: those are no JSON."""
    if body_type not in _standard_decoders:
        try:
            _standard_decoders[body_type] = msgspec.json.Decoder(body_type, strict=False)
        except TypeError:
            _standard_decoders[body_type] = None
    return _standard_decoders[body_type]
