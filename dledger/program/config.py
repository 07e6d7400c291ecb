"""Config files: TOML into a typed struct, with errors that name the key.

A config is a frozen msgspec Struct with camelCase keys (`rename="camel"`), defaults included.
A key with dots in it (`tls.server.mode`) is a table to TOML, and one key here. Keys that it does
not know are refused, since a misspelt `flushDiskType` that is silently ignored costs messages; the
message suggests the nearest key.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from dledger.errors import ConfigError
from dledger.program.settings import unknown_key

ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)


def load_config(path: Path | str, config_type: type[ConfigT]) -> ConfigT:
    """Read a config from a TOML file. Raises ConfigError naming the file and the key."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    return parse_config(values, config_type, str(path))


def parse_config(values: Mapping[str, object], config_type: type[ConfigT], source: str) -> ConfigT:
    """Make a config of already read `values`; `source` says in errors where they are from."""
    known = {field.encode_name: field for field in msgspec.structs.fields(config_type)}
    values = dict(_flat(values))
    for key in values:
        if key not in known:
            raise ConfigError(f"{source}: {unknown_key(key, known)}")
    converted: dict[str, object] = {}
    for key, field in known.items():
        if key in values:
            try:
                converted[field.name] = msgspec.convert(values[key], field.type)
            except msgspec.ValidationError as error:
                raise ConfigError(f"{source}: {key} = {values[key]!r}: {error}") from error
        elif field.required:
            raise ConfigError(f"{source}: the key {key!r} is required")
    try:
        return config_type(**converted)
    except ValueError as error:
        raise ConfigError(f"{source}: {error}") from error


def _flat(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    """Each key with its value; that of a value in a table with the table's name, and a dot."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value
