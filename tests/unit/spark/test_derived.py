"""What a broker makes from its log is compared with the log: every unit, wherever it is wrong."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import msgspec
import pytest

from dledger.checksum import crc32
from mqbroker.state.derived.units import UNIT, UNIT_BYTES, filed, unfiled
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


def files(store: Path, pattern: str) -> list[Path]:
    return sorted(path for path in store.glob(pattern) if path.is_file())


def test_what_was_made_from_the_log_is_as_the_log_has_it(store: Path) -> None:
    """Every message has a unit in its queue, and one for its key."""
    derived = Derived(store, RUN.segment_bytes)
    assert [*derived.differences(0)] == []
    assert derived.looked_at > 2 * RUN.messages


@pytest.mark.parametrize("pattern", ["queues/*/*/*", "index/*"])
def test_any_flipped_bit_of_a_unit_is_named_with_its_place(store: Path, pattern: str) -> None:
    """The file, and the number of the unit."""
    draw = random.Random(pattern)
    for path in files(store, pattern):
        sound = path.read_bytes()
        width = UNIT_BYTES if "queues" in pattern else 16
        for _ in range(12):
            bit = draw.randrange(8 * len(sound))
            changed = bytearray(sound)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            (found,) = differences(store)
            assert found.file == str(path.relative_to(store))
            assert found.first == found.last == bit // 8 // width, bit
        path.write_bytes(sound)


@pytest.mark.parametrize("pattern", ["queues/*/*/*", "index/*"])
def test_a_file_that_is_cut_or_gone_is_named_with_what_it_lacks(store: Path, pattern: str) -> None:
    """The range of units; what comes behind what the snapshot claims says nothing."""
    (path, *_), width = files(store, pattern), UNIT_BYTES if "queues" in pattern else 16
    sound = path.read_bytes()
    count = len(sound) // width
    for kept in (count - 1, 1, 0):
        path.write_bytes(sound[: kept * width])
        (found,) = differences(store)
        assert (found.first, found.last) == (kept, count - 1)
    path.unlink()
    (found,) = differences(store)
    assert (found.first, found.last) == (0, count - 1)
    path.write_bytes(sound + b"\xff" * 3 * width)
    assert differences(store) == []


def test_units_with_right_checks_that_say_something_else_are_named(store: Path) -> None:
    """A broker that writes the unit of another message, or of another length, lies consistently."""
    path, other = files(store, "queues/*/*/*")[:2]
    seed = crc32("/".join(path.parts[-3:-1]).encode())
    units, bad = unfiled(path.read_bytes(), 0, seed)
    assert bad is None
    elsewhere, _ = unfiled(other.read_bytes(), 0, crc32("/".join(other.parts[-3:-1]).encode()))
    lies = [
        units[[0, 2, 1, *range(3, len(units))]],
        units.copy(),
        units.copy(),
        units.copy(),
    ]
    lies[1]["size"][1:3] += 1
    lies[2][1:3] = elsewhere[1:3]
    lies[3]["position"][1:3] = 2**63
    for lie in lies:
        path.write_bytes(filed(lie.astype(UNIT).tobytes(), 0, seed))
        (found,) = differences(store)
        assert (found.first, found.last) == (1, 2)
        assert found.error == "the log has no such message where they point to"


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_of_any_bytes_is_read_or_named(store: Path, seed: int) -> None:
    """With right checksums, too."""
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


def test_a_snapshot_that_is_ahead_of_its_log_is_named(store: Path) -> None:
    """It may hold what was never committed."""
    (found,) = Derived(store, RUN.segment_bytes).differences(3)
    assert found.file == SNAPSHOT
    assert "the log ends with 3" in found.error
