"""The pinned Raft library has the private names that dledger.raft.library.adapter uses."""

from __future__ import annotations

import hashlib
import inspect
import re
from importlib.metadata import version
from pathlib import Path

import pysyncobj.syncobj

from dledger.raft.library import adapter as library

SOURCE = Path(inspect.getfile(pysyncobj.syncobj)).read_bytes()


def test_the_librarys_source_is_the_one_this_was_written_against() -> None:
    """Another version of the library must be read before SOURCE_SHA256 is changed."""
    assert version("pysyncobj") == "0.3.17"
    assert hashlib.sha256(SOURCE).hexdigest() == library.SOURCE_SHA256


def test_every_private_name_that_is_used_is_listed() -> None:
    """The table at the module's top is complete, and each name exists in the library."""
    code = inspect.getsource(library)
    used = set(re.findall(r"_SyncObj(__\w+)", code))
    listed = set(re.findall(r"^`(__\w+)`", library.__doc__ or "", re.MULTILINE))
    assert used == listed
    for name in used:
        assert f"self.{name}".encode() in SOURCE


def test_the_library_is_imported_in_one_place_only() -> None:
    """Whatever changes in it, one module has to follow."""
    root = Path(library.__file__).parents[3]
    importers = {
        str(path.relative_to(root))
        for package in ("dledger", "broker", "namesrv", "client", "chaos", "spark")
        for path in (root / package).rglob("*.py")
        if re.search(r"^\s*(import|from) pysyncobj", path.read_text(), re.MULTILINE)
    }
    assert importers == {"dledger/raft/library/adapter.py"}
