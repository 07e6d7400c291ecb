"""A server's config as administration tools see it: properties text, changes at run time. Pure.

GET_BROKER_CONFIG, UPDATE_BROKER_CONFIG and their name server twins carry `key=value` lines. Few
keys can change while a server runs. A change of another key is refused by name, since a server that
agrees and goes on as before is worse than one that refuses.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec

from dledger.buffers import Buffer
from dledger.errors import BadInput, ConfigError, shown
from dledger.limits import NAME_SHOWN_CHARACTERS_MAX, PROPERTIES_TEXT_BYTES_MAX
from dledger.remoting.command import Command

ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)

_HIDDEN = "******"


class FixedKey(ConfigError):
    """The key exists, but its value is fixed while the server runs."""


def write_properties(config: msgspec.Struct, secrets: Collection[str] = ()) -> str:
    """A config as properties text, sorted by key; the values of `secrets` are not shown."""
    values = msgspec.to_builtins(config)
    lines = []
    for key, value in sorted(values.items()):
        text = _HIDDEN if key in secrets and value else _shown(value)
        lines.append(f"{key}={text}\n")
    return "".join(lines)


def parse_properties(data: Buffer) -> dict[str, str]:
    """The pairs of properties text; blank lines and comments are skipped. BadInput if malformed, or
    longer than any config."""
    if len(data) > PROPERTIES_TEXT_BYTES_MAX:
        raise BadInput(f"properties text of {len(data)} bytes is above {PROPERTIES_TEXT_BYTES_MAX}")
    try:
        lines = [line.strip() for line in str(data, "utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise BadInput(f"the properties text is not valid UTF-8: {error}") from error
    pairs = {}
    for line in lines:
        if not line or line[0] in "#!":
            continue
        key, separator, value = line.partition("=")
        if not separator:
            raise BadInput(f"the properties line {shown(line)} has no '='")
        pairs[key.strip()] = value.strip()
    return pairs


def names_of(changeable: Collection[str]) -> Callable[[Command], Iterator[str]]:
    """The settings that a request changes, for an audit log. The value of a
    key that can't be changed is left out: it may be a secret."""

    def names(request: Command) -> Iterator[str]:
        for key, value in parse_properties(request.payload).items():
            yield f"{key}={value}" if key in changeable else key

    return names


def check_keys(config: msgspec.Struct, keys: Iterable[str], changeable: Collection[str]) -> None:
    """Raise ConfigError for a key that `config` has not, FixedKey for one not in `changeable`."""
    known = config.__struct_encode_fields__
    for key in keys:
        if key not in known:
            can = f"keys that can change: {', '.join(sorted(changeable))}"
            raise ConfigError(f"{unknown_key(key, known)}; {can}")
        if key not in changeable:
            raise FixedKey(
                f"{key} can't change while the server runs: change its config file and restart "
                f"it; keys that can change: {', '.join(sorted(changeable))}"
            )


def changed(config: ConfigT, changes: Mapping[str, str]) -> ConfigT:
    """The config with some values replaced, given as text. ConfigError names a value's problem."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(config)}
    values: dict[str, object] = {}
    for key, text in changes.items():
        try:
            values[fields[key].name] = msgspec.convert(text, fields[key].type, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{key} is {shown(text)}: {error}") from error
    return msgspec.structs.replace(config, **values)


def unknown_key(key: str, known: Iterable[str]) -> str:
    """The error for a key that does not exist, with the nearest key that does."""
    if len(key) > NAME_SHOWN_CHARACTERS_MAX:
        return f"unknown key {shown(key)}"
    nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    return f"unknown key {key!r}" + (f"; did you mean {nearest[0]}?" if nearest else "")


def _shown(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
