"""Files that a broker makes from its log are compared with the log, unit by unit."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import msgspec
import pytest

from dledger.checksum import crc32
from mqbroker.testing.leading import serve
from mqspark.source.derived import SNAPSHOT, Derived, Difference
from mqspark.testing.synthetic import Run, write_run

RUN = Run(messages=120, queues=3, batch=10, segment_bytes=16_384, nodes=("n0",))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replica whose broker has applied its log, and saved its state."""
    _, (store,) = write_run(RUN, tmp_path_factory.mktemp("served") / "run")
    serve(store, RUN.segment_bytes)
    return store


@pytest.fixture
def store(served: Path, tmp_path: Path) -> Path:
    return shutil.copytree(served, tmp_path / "store")


def differences(store: Path) -> list[Difference]:
    return [*Derived(store, RUN.segment_bytes).differences(0)]


def test_what_was_made_from_the_log_is_as_the_log_has_it(store: Path) -> None:
    """Every message has a unit in its queue, and one for its key."""
    derived = Derived(store, RUN.segment_bytes)
    assert [*derived.differences(0)] == []
    assert derived.looked_at > 2 * RUN.messages


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_of_any_bytes_is_read_or_named(store: Path, seed: int) -> None:
    """A snapshot of any bytes is read or named as damage, also with right checksums."""
    draw = random.Random(seed)
    path = store / SNAPSHOT
    raw = path.read_bytes()
    payloads = [
        draw.randbytes(40),
        b"\xc1",
        msgspec.msgpack.encode({"queues": draw.choice([3, {"T": 3}, {"T": [1, {"x": 2}]}])}),
        msgspec.msgpack.encode({"queues": {"T/..": [1, {0: 2}]}, "units_format": 2}),
        msgspec.msgpack.encode({"queues": {"T\0": [1, {0: 2}]}, "units_format": 2}),
        msgspec.msgpack.encode({"queues": {"T": [1, {2**40: 2}]}, "units_format": 2}),
        msgspec.msgpack.encode({"queues": {"T": [1, {0: 2**63 - 1}]}, "units_format": 2}),
        msgspec.msgpack.encode({"keys": [5, 2], "units_format": 2}),
    ]
    payload = payloads[seed]
    path.write_bytes(raw[:8] + len(payload).to_bytes(8, "big") + crc32(payload).to_bytes(4, "big"))
    with path.open("ab") as file:
        file.write(payload)
    assert {each.file for each in differences(store)} == {SNAPSHOT}
    cut = draw.randrange(len(raw))
    path.write_bytes(raw[:cut])
    assert [each.file for each in differences(store)] == [SNAPSHOT]
