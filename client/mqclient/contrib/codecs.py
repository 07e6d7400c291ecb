"""Codecs: values of a program as bodies of messages, and back.

::

    codec = msgspec_codec(Order)
    Producer(NAMESRV, encode=codec.encode)
    Consumer(NAMESRV, "G", {"Orders": "*"}, decode=codec.decode)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from pydantic import BaseModel


class Codec(NamedTuple):
    """Makes a body of a value, and a value of a body; both raise for what they can't."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def _json_encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


JSON = Codec(_json_encode, json.loads)
"""Whatever JSON has: objects, lists, texts, numbers, true, false, null."""


def msgspec_codec(type_: Any) -> Codec:
    """Values of a type that msgspec knows (a Struct, a dataclass, a union), as JSON; checked."""
    return Codec(msgspec.json.Encoder().encode, msgspec.json.Decoder(type_).decode)


def pydantic_codec(model: type[BaseModel]) -> Codec:
    """Values of a pydantic model, as JSON; validated. Encoding raises TypeError for another's."""

    def encode(value: object) -> bytes:
        if not isinstance(value, model):
            raise TypeError(f"{value!r:.100} is not a {model.__name__}")
        return value.model_dump_json().encode()

    return Codec(encode, model.model_validate_json)
