"""The key-value config: an immutable table, and a file that is durable before anyone sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dledger.errors import BadInput, ConfigError, StorageError
from mqnamesrv import limits
from mqnamesrv.saved.kv import KvTable
from mqnamesrv.saved.kv_file import KvStore


def test_a_value_can_be_set_read_listed_and_deleted() -> None:
    """Namespaces are independent, and an empty one does not exist."""
    table = KvTable().put("ORDER_TOPIC_CONFIG", "TopicA", "broker-a:4").put("Other", "k", "v")
    assert table.get("ORDER_TOPIC_CONFIG", "TopicA") == "broker-a:4"
    assert table.get("ORDER_TOPIC_CONFIG", "k") is None
    assert dict(table.entries("Other")) == {"k": "v"}
    assert table.delete("Other", "k").namespaces.keys() == {"ORDER_TOPIC_CONFIG"}
    assert table.delete("Other", "unknown") is table


def test_a_change_leaves_the_old_table_as_it_was() -> None:
    """A change makes a new table, so that a failed write can keep the old one."""
    before = KvTable().put("n", "k", "1")
    before.put("n", "k", "2")
    assert before.get("n", "k") == "1"


def test_a_table_survives_its_file_form() -> None:
    """The file has RocketMQ's form, so a kvConfig.json of a stock name server can be taken over."""
    table = KvTable().put("n", "k", "ü")
    assert json.loads(table.encode()) == {"configTable": {"n": {"k": "ü"}}}
    assert KvTable.decode(table.encode()) == table


@pytest.mark.parametrize("data", [b"", b"[]", b'{"configTable":{"n":{"k":1}}}', b"\xff"])
def test_a_file_of_another_form_is_refused(data: bytes) -> None:
    """A file of another form is an error, and never an empty table."""
    with pytest.raises(ConfigError):
        KvTable.decode(data)


def test_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long values and too many entries are refused; changing an existing entry is not."""
    with pytest.raises(BadInput, match=f"at most {limits.KV_VALUE_BYTES_MAX}"):
        KvTable().put("n", "k", "x" * (limits.KV_VALUE_BYTES_MAX + 1))
    monkeypatch.setattr(limits, "KV_ENTRIES_MAX", 1)
    full = KvTable().put("n", "k", "v")
    with pytest.raises(BadInput, match="1 entries"):
        full.put("n", "other", "v")
    assert full.put("n", "k", "w").get("n", "k") == "w"


async def test_a_store_finds_its_values_again(tmp_path: Path) -> None:
    """A store finds its values after a restart, and makes its folder with the first write."""
    path = tmp_path / "config" / "kvConfig.json"
    store = KvStore(path)
    await store.put("n", "k", "v")
    await store.put("n", "gone", "v")
    await store.delete("n", "gone")
    assert KvStore(path).table.namespaces == {"n": {"k": "v"}}
    assert {p.name for p in path.parent.iterdir()} == {"kvConfig.json", "kvConfig.json.journal"}


async def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    """A failed write raises an error, and the old value stays visible."""
    path = tmp_path / "kvConfig.json"
    store = KvStore(path)
    await store.put("n", "k", "old")
    (tmp_path / "kvConfig.json.new").mkdir()
    (tmp_path / "kvConfig.json.journal").mkdir()
    with pytest.raises(StorageError, match="kvConfigPath"):
        await store.put("n", "k", "new")
    assert store.table.get("n", "k") == "old"
    (tmp_path / "kvConfig.json.journal").rmdir()
    assert KvStore(path).table.get("n", "k") == "old"


def test_a_damaged_file_stops_the_start(tmp_path: Path) -> None:
    """The message names the key, the file and the remedy."""
    path = tmp_path / "kvConfig.json"
    path.write_bytes(b"{")
    with pytest.raises(ConfigError, match=f"kvConfigPath {path}.*repair or move"):
        KvStore(path)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    """A start would wait for ever, without a word."""
    os.mkfifo(tmp_path / "kv.json")
    with pytest.raises(ConfigError, match="it is a pipe, not a file"):
        KvStore(tmp_path / "kv.json")


async def test_a_store_without_a_path_works_in_memory() -> None:
    """A store without a path writes nothing, and begins empty."""
    store = KvStore(None)
    await store.put("n", "k", "v")
    assert store.table.get("n", "k") == "v"
    assert KvStore(None).table.count == 0


def test_a_namespace_is_bounded_by_its_answers_length() -> None:
    """A namespace is bounded by its answer's length, but for changes that make it less."""
    table, value = KvTable(), "x" * limits.KV_VALUE_BYTES_MAX
    for number in range(limits.KV_NAMESPACE_BYTES_MAX // len(value) - 1):
        table = table.put("n", f"{number}", value)
    with pytest.raises(BadInput, match="namespace 'n' would have"):
        table.put("n", "one", value).put("n", "more", value)
    assert table.sizes["n"] <= limits.KV_NAMESPACE_BYTES_MAX
    assert table.put("n", "0", "less").sizes["n"] < table.sizes["n"]
    assert table.put("other", "k", value).sizes["other"] > len(value)
    controls = "\0" * limits.KV_VALUE_BYTES_MAX  # six bytes each, as they are answered
    assert KvTable().put("n", "k", controls).sizes["n"] > 6 * len(controls)


def test_all_namespaces_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger table of an earlier version can be read, and made smaller."""
    monkeypatch.setattr(limits, "KV_BYTES_MAX", 100)
    table = KvTable().put("a", "k", "x" * 40)
    with pytest.raises(BadInput, match="key-value config would have"):
        table.put("b", "k", "x" * 60)
    monkeypatch.setattr(limits, "KV_BYTES_MAX", 10)
    older = KvTable.decode(table.encode())
    assert older == table
    assert older.put("a", "k", "x" * 39).get("a", "k") == "x" * 39
    assert older.delete("a", "k").sizes == {}
