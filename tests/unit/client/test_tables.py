"""Imports of numpy, which no event loop waits for."""

from __future__ import annotations

import subprocess
import sys

import pytest
from trio.testing import MockClock

from mqclient import tables
from mqlocal import local_cluster

PROGRAM = """
import sys, threading, anyio

class Watching:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy":
            print("imported by the loop:", threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Watching())
from mqclient import Message, tables
from mqclient.connection.identity import UniqueKeys
from mqclient.consuming.columns.batch import batch_in
from mqclient.producing.encoding import Encoder

encoder = Encoder(UniqueKeys("127.0.0.1"), "127.0.0.1", None)
bodies = [b"%d" % number for number in range(100)]

def encoded():
    records = bytes(encoder.encode_many(Message("T", b""), 0, bodies).records)
    read = batch_in(records, "b")
    return type(read).__name__, len(records), read.bodies() == bodies

first = encoded()
anyio.run(tables.bring)
print(*first)
print(*encoded())
"""


def test_many_messages_are_handled_one_by_one_until_numpy_is_there() -> None:
    """Messages are handled one by one until numpy's import in a thread has ended."""
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    ).stdout.splitlines()
    told, first, then = printed
    assert told == "imported by the loop: False"
    kind, size_bytes, same = first.split()
    assert (kind, same) == ("Listed", "True")
    assert then == f"Rows {size_bytes} True"


async def test_calls_for_many_messages_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """`send_many` and `poll_many` wait for numpy, and few messages do without."""
    ways: list[str] = []
    brought: list[str] = []
    async with local_cluster(replicas=1) as cluster:

        async def bring() -> None:
            brought.append(ways[-1])

        monkeypatch.setattr(tables, "bring", bring)
        async with (
            cluster.producer("P") as producer,
            cluster.producer("Q", compression="zlib") as other,
            cluster.consumer("G", {"T": "*"}) as consumer,
        ):
            ways.append("few")
            await producer.send_many("T", [b"x"] * 3)
            ways.append("many")
            await producer.send_many("T", [b"x"] * 100)
            ways.append("compressed")
            await other.send_many("T", [b"x"] * 3)
            ways.append("read")
            await consumer.poll_many()
    assert brought == ["many", "compressed", "read"]
