"""How a typed header becomes the `ext` map of a command, and back.

Integers have the width that RocketMQ gives them (`dledger.remoting.numbers`).
On the wire a typed header is flattened into a map of field names in camelCase. Stock Java clients
write every value as a string, the C++ and Node clients write numbers and booleans, and ours
(msgpack) writes what the field is. Reading accepts all of them; what a field becomes is the
type's decision. Fields that the type does not know are ignored: every RocketMQ release adds some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from dledger.errors import HeaderError
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue

HeaderT = TypeVar("HeaderT", bound="Header")
_WORD_BEGINS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_VALUE_SHOWN_CHARACTERS = 64


class Header(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The base of the typed headers. A field with the default None is optional on the wire."""


@cache
def code_of(header_type: type[Header]) -> RequestCode:
    """The code that a request's header is named after: CREATE_USER for CreateUserHeader."""
    name = header_type.__name__.removesuffix("Header")
    return RequestCode[_WORD_BEGINS.sub("_", name).upper()]


def decode_header(header_type: type[HeaderT], command: Command) -> HeaderT:
    """Read the typed header of `command`.

    Raises HeaderError naming the field and its value if a required field is missing or one has the
    wrong kind. A server answers that with SYSTEM_ERROR and the error's text.
    """
    try:
        return msgspec.convert(command.ext, header_type, strict=False)
    except msgspec.ValidationError:
        return _decode_field_by_field(header_type, command.ext)


def encode_header(header: Header) -> dict[str, ExtValue]:
    """Flatten `header` into the map that goes into `Command.ext`; None is left out."""
    flat: dict[str, ExtValue] = msgspec.to_builtins(header)
    return flat


def _decode_field_by_field(header_type: type[HeaderT], ext: Mapping[str, ExtValue]) -> HeaderT:
    """Decode slowly: numbers where text is expected are tolerated, errors name their field."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(header_type):
        value = ext.get(field.encode_name)
        if value is None:
            if field.required:
                raise HeaderError(
                    f"{header_type.__name__} lacks the required field {field.encode_name!r}"
                )
            continue
        values[field.name] = _convert(header_type, field, value)
    return header_type(**values)


def _convert(header_type: type[Header], field: msgspec.structs.FieldInfo, value: ExtValue) -> Any:
    """`value` as the type of `field`, also where the sender wrote it as another kind."""
    for candidate in (value, text(value)):
        try:
            return msgspec.convert(candidate, field.type, strict=False)
        except msgspec.ValidationError as error:
            problem = error
    shown = repr(value)
    if len(shown) > _VALUE_SHOWN_CHARACTERS:
        shown = shown[:_VALUE_SHOWN_CHARACTERS] + "..."
    raise HeaderError(
        f"{header_type.__name__} field {field.encode_name!r} is {shown}: {problem}"
    ) from None


def text(value: ExtValue) -> ExtValue:
    """`value` as JSON and ROCKETMQ headers write it: text. Lists and bytes stay as they are."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int | float):
        return str(value)
    return value
