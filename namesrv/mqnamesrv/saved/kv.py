"""The key-value config of a name server: namespace -> key -> value. Pure.

RocketMQ keeps one namespace that clients see, ORDER_TOPIC_CONFIG: the queue counts of ordered
topics, handed out with their routes. One of ours, WIPED_BROKERS, has the broker groups whose write
permission was taken. The table is an immutable value, so that a change can be made durable first
and become visible after. Its file has the form of RocketMQ's kvConfig.json,
`{"configTable": {"<namespace>": {"<key>": "<value>"}}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from dledger.checksum import crc32
from dledger.errors import BadInput, ConfigError
from mqnamesrv import limits

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
WIPED_BROKERS = "WIPED_BROKERS"

Namespaces = Mapping[str, Mapping[str, str]]
_NOTHING: Mapping[str, str] = MappingProxyType({})


class _File(msgspec.Struct, rename="camel"):
    config_table: dict[str, dict[str, str]]


_Change = tuple[str, str, str | None]


def encode_change(namespace: str, key: str, value: str | None) -> bytes:
    """A journal's line: a value that was set, or (None) removed."""
    content = msgspec.json.encode((namespace, key, value))
    return b"%08x %s\n" % (crc32(content), content)


@dataclass(frozen=True, slots=True)
class KvTable:
    """All namespaces at one moment."""

    namespaces: Namespaces = field(default_factory=dict)
    #: Bytes of each namespace as it is answered.
    sizes: Mapping[str, int] = field(default_factory=dict)

    def get(self, namespace: str, key: str) -> str | None:
        """Value of a key in a namespace, or None."""
        return self.entries(namespace).get(key)

    def entries(self, namespace: str) -> Mapping[str, str]:
        """All entries of a namespace; empty if there is none."""
        return self.namespaces.get(namespace, _NOTHING)

    def put(self, namespace: str, key: str, value: str) -> KvTable:
        """The table with this value set; BadInput if a bound is passed."""
        for name, text, bytes_max in (
            ("namespace", namespace, limits.KV_KEY_BYTES_MAX),
            ("key", key, limits.KV_KEY_BYTES_MAX),
            ("value", value, limits.KV_VALUE_BYTES_MAX),
        ):
            size_bytes = len(text.encode())
            if size_bytes > bytes_max:
                raise BadInput(f"the {name} has {size_bytes} bytes; at most {bytes_max} are kept")
        if self.get(namespace, key) is None and self.count >= limits.KV_ENTRIES_MAX:
            raise BadInput(f"the name server holds {self.count} entries already; delete some")
        table = self._with(namespace, {**self.entries(namespace), key: value})
        before, after = self.sizes.get(namespace, 0), table.sizes[namespace]
        for what, size, bytes_max in (
            (f"namespace {namespace!r}", after, limits.KV_NAMESPACE_BYTES_MAX),
            ("key-value config", sum(table.sizes.values()), limits.KV_BYTES_MAX),
        ):
            # A file of an earlier version may hold more: that can be made less.
            if size > bytes_max and after > before:
                raise BadInput(f"the {what} would have {size} bytes; at most {bytes_max} are kept")
        return table

    def delete(self, namespace: str, key: str) -> KvTable:
        """The table without this key; the same table if it has none."""
        entries = {k: v for k, v in self.entries(namespace).items() if k != key}
        return (
            self if len(entries) == len(self.entries(namespace)) else self._with(namespace, entries)
        )

    @property
    def count(self) -> int:
        """Entries of all namespaces together."""
        return sum(len(entries) for entries in self.namespaces.values())

    def encode(self) -> bytes:
        """The content of the config file."""
        return json.dumps({"configTable": self.namespaces}, indent=1, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> KvTable:
        """The table of a config file; ConfigError if it is none."""
        try:
            return cls._of(msgspec.json.decode(data, type=_File).config_table)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(f"no key-value config: {error}") from error

    def with_changes(self, journal: bytes) -> KvTable:
        """The table after the changes of a journal. ConfigError if it is none.

        A last line without an end was never acknowledged, and is ignored.
        """
        table = {name: dict(kept) for name, kept in self.namespaces.items()}
        for number, line in enumerate(journal.split(b"\n")[:-1], 1):
            crc, _, content = line.partition(b" ")
            try:
                namespace, key, value = msgspec.json.decode(content, type=_Change)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise ConfigError(f"line {number} of its journal: {error}") from error
            if crc != b"%08x" % crc32(content):
                raise ConfigError(f"line {number} of its journal does not match its checksum")
            entries = table.setdefault(namespace, {})
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
        return self._of({name: entries for name, entries in table.items() if entries})

    def _with(self, namespace: str, entries: Mapping[str, str]) -> KvTable:
        others = {name: kept for name, kept in self.namespaces.items() if name != namespace}
        sizes = {name: size for name, size in self.sizes.items() if name != namespace}
        if not entries:
            return KvTable(others, sizes)
        return KvTable({**others, namespace: entries}, {**sizes, namespace: _size(entries)})

    @classmethod
    def _of(cls, namespaces: Namespaces) -> KvTable:
        return cls(namespaces, {name: _size(entries) for name, entries in namespaces.items()})


def _size(entries: Mapping[str, str]) -> int:
    return len(msgspec.json.encode(entries))
