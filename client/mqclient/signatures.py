"""The types of arguments, checked where an application's call comes in.

A wrong one would show late and somewhere else, or never: `ordered="no"` is true, a list of topics
has no tags, a handler that is none fails with each message. So a public call says which of its
parameters is wrong, before it does anything. What is right follows from the signature alone.

Calls that run once for each message look at their arguments themselves.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import wraps
from os import PathLike
from typing import Any, Literal, ParamSpec, TypeVar

from dledger.errors import BadInput
from mqclient import limits
from mqclient.habits import hint_for

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")

_ITSELF = "_checks_itself"
_BYTES = (bytes, bytearray, memoryview)
_WORDS: dict[object, str] = {
    str: "text",
    bytes: "bytes",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    type(None): "None",
    datetime: "a time",
}


def checks_itself(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a call that runs for each message, and looks at its arguments itself."""
    setattr(function, _ITSELF, True)
    return function


def checked(kind: type[T]) -> type[T]:
    """Make each public call of a class refuse arguments of types that its signature doesn't have.

    Raises BadInput, with the parameter's name.
    """
    for name, call in [*vars(kind).items()]:
        is_public = name == "__init__" or not name.startswith("_")
        if is_public and inspect.isfunction(call) and not hasattr(call, _ITSELF):
            setattr(kind, name, checked_call(call))
    return kind


def checked_call(call: Callable[P, R]) -> Callable[P, R]:
    """Make one call refuse them."""
    signature = inspect.signature(call)
    hints: dict[str, Any] = {}

    def check(*args: P.args, **kwargs: P.kwargs) -> None:
        if not hints:
            hints.update(typing.get_type_hints(call))
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            if hint := hint_for(kwargs.keys() - signature.parameters.keys()):
                raise TypeError(f"{call.__qualname__}(): {error}: here {hint}") from None
            return  # Python says so itself
        for name, value in given.items():
            kind = signature.parameters[name].kind
            values = value if kind is inspect.Parameter.VAR_POSITIONAL else (value,)
            for each in values:
                if name in hints and not accepts(hints[name], each):
                    raise wrong(name, each, hints[name])

    if inspect.iscoroutinefunction(call):

        @wraps(call)
        async def checked_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(*args, **kwargs)
            return await call(*args, **kwargs)

        return typing.cast("Callable[P, R]", checked_coroutine)

    @wraps(call)
    def checked_function(*args: P.args, **kwargs: P.kwargs) -> R:
        check(*args, **kwargs)
        return call(*args, **kwargs)

    return checked_function


def wrong(name: str, value: object, hint: object) -> BadInput:
    """The error for an argument of another type."""
    shown = repr(value)[: limits.VALUE_CHARACTERS_MAX]
    is_another = type(value) in map(type, _literals(hint))
    what = "" if is_another else f" is of type {_name(type(value))}"
    return BadInput(f"{name}={shown}{what}: expected {_words(hint)}")


def _name(kind: type) -> str:
    """A class's name; for one that is not Python's own with the module, as two may be called so."""
    own = kind.__module__ == "builtins"
    return kind.__name__ if own else f"{kind.__module__}.{kind.__name__}"


def accepts(hint: Any, value: object) -> bool:
    """Whether a value is of a type, as a signature has it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(accepts(part, value) for part in parts)
    if origin is Literal:
        return any(type(part) is type(value) and part == value for part in parts)
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is not None and isinstance(origin, type):
        return _accepts_all(origin, parts, value)
    if hint in (int, float):
        numbers = int if hint is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if hint is bytes:
        return isinstance(value, _BYTES)
    if not isinstance(hint, type):
        return True  # anything
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in _members(hint))
    return isinstance(value, hint)


def _accepts_all(origin: type, parts: tuple[Any, ...], value: object) -> bool:
    """Whether a value is a collection of such parts; text and bytes are none of texts or bytes."""
    if not isinstance(value, origin):
        return False
    if origin in (re.Pattern, PathLike):
        return True
    if isinstance(value, Mapping):
        return all(accepts(parts[0], key) and accepts(parts[1], value[key]) for key in value)
    if isinstance(value, str | bytes | bytearray | memoryview):
        return False
    if parts[0] is bytes:
        return True  # bodies: there may be many, and their call looks at each
    return not isinstance(value, collections.abc.Collection) or all(
        accepts(parts[0], each) for each in value
    )


def _members(protocol: type) -> list[str]:
    return [name for name in vars(protocol) if name == "__call__" or not name.startswith("_")]


def _words(hint: Any) -> str:
    *most, last = dict.fromkeys(_kinds(hint))
    return f"{', '.join(most)} or {last}" if most else last


def _kinds(hint: Any) -> list[str]:
    """The kinds of values that a type allows, in words."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return [words for part in parts for words in _kinds(part)]
    if origin is Literal:
        return [repr(part) for part in parts]
    if origin is collections.abc.Callable or getattr(hint, "_is_protocol", False):
        return ["a function" if origin or "__call__" in vars(hint) else f"a {hint.__name__}"]
    if origin is re.Pattern:
        return ["a compiled pattern"]
    if origin is PathLike:
        return ["a path"]
    if origin is not None and issubclass(origin, Mapping):
        return [f"a mapping of {_words(parts[0])} to {_words(parts[1])}"]
    if origin is not None:
        return [f"a list of {_words(parts[0]).removeprefix('a ')}"]
    return [_WORDS.get(hint) or (f"a {hint.__name__}" if isinstance(hint, type) else str(hint))]


def _literals(hint: Any) -> list[object]:
    """The values that a type names."""
    parts = typing.get_args(hint)
    if typing.get_origin(hint) is Literal:
        return [*parts]
    return [value for part in parts for value in _literals(part)]
