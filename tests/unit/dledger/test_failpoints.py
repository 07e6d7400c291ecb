"""Failpoints do nothing without an order, and write down what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dledger.errors import ConfigError
from dledger.failpoints import SEAM, VARIABLE, failpoint
from dledger.log.disk import Disk
from dledger.program.arming import ORDERS, REACHED, Order, Reached, arm


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose orders this process takes; afterwards it takes none."""
    before = signal.getsignal(signal.SIGUSR1)
    yield tmp_path
    signal.signal(signal.SIGUSR1, before)
    SEAM.handler, SEAM.ahead_ms = None, 0


def order(folder: Path, *orders: Order, **others: object) -> None:
    """Write down what shall happen."""
    (folder / ORDERS).write_bytes(msgspec.json.encode({"orders": orders, **others}))


def happened(folder: Path) -> list[tuple[str, str]]:
    """Places and actions that were written down, without the orders."""
    lines = (folder / REACHED).read_bytes().splitlines()
    told = [msgspec.json.decode(line, type=Reached) for line in lines]
    return [(each.place, each.action) for each in told if each.place]


def test_without_orders_nothing_happens(folder: Path) -> None:
    """A process without orders has no handler."""
    arm(folder)

    assert SEAM.handler is None
    assert failpoint("log.staged") is False


def test_a_place_fails_from_its_nth_pass_on(folder: Path) -> None:
    """A place fails from its nth pass on with the ordered error, until other orders come."""
    order(folder, Order(1, "disk.sync", "fail", nth=2, error="EIO"))
    arm(folder)

    failpoint("disk.sync")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error"):
            failpoint("disk.sync")
    order(folder)
    os.kill(os.getpid(), signal.SIGUSR1)
    failpoint("disk.sync")

    assert happened(folder) == [("disk.sync", "fail")]


def test_a_held_thread_goes_on_when_its_time_is_over(folder: Path) -> None:
    """A held thread goes on after its time, and the next pass is not held."""
    order(folder, Order(1, "log.staged", "hold", seconds=0.05))
    arm(folder)

    began = time.monotonic()
    failpoint("log.staged")
    held_s = time.monotonic() - began
    failpoint("log.staged")

    assert held_s >= 0.05
    assert happened(folder) == [("log.staged", "hold")]


def test_a_held_thread_goes_on_when_orders_change(folder: Path) -> None:
    """A held thread goes on when a signal brings other orders."""
    order(folder, Order(1, "log.staged", "hold", seconds=600))
    arm(folder)
    order(folder)
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        failpoint("log.staged")
    finally:
        signal.signal(signal.SIGALRM, before)

    assert happened(folder) == [("log.staged", "hold")]


def test_a_clock_jumps_to_and_fro_until_other_orders_come(folder: Path) -> None:
    """A clock jumps to and fro by the ordered time, and stops with other orders."""
    order(folder, ahead_ms=2000, strobe_s=0.002)
    arm(folder)

    seen: set[int] = set()
    give_up_at = time.monotonic() + 10
    while seen != {2000, -2000} and time.monotonic() < give_up_at:
        seen.add(SEAM.ahead_ms)
        time.sleep(0.001)
    order(folder, ahead_ms=0)
    os.kill(os.getpid(), signal.SIGUSR1)
    while (
        any(each.name == "strobe" for each in threading.enumerate())
        and time.monotonic() < give_up_at
    ):
        time.sleep(0.001)

    assert seen == {2000, -2000}
    assert SEAM.ahead_ms == 0


def test_a_torn_write_has_half_of_its_bytes_when_its_place_is_reached(folder: Path) -> None:
    """A torn write has half of its bytes at its place, and all if the process goes on."""
    path = folder / "file"
    path.write_bytes(bytes(8))
    descriptor, seen = Disk().open(path), []
    SEAM.handler = lambda place: seen.append((place, path.read_bytes())) or place == "disk.write"

    Disk().write(descriptor, [b"abcd", b"efgh"], 0)

    assert seen == [("disk.write", bytes(8)), ("disk.torn-write", b"abcd" + bytes(4))]
    assert path.read_bytes() == b"abcdefgh"
    os.close(descriptor)


def test_places_are_noted_once(folder: Path) -> None:
    """Places that a run passes are noted once each."""
    order(folder, notes=True)
    arm(folder)

    for place in ("log.staged", "log.staged", "log.written"):
        failpoint(place)

    assert happened(folder) == [("log.staged", "noted"), ("log.written", "noted")]


@pytest.mark.parametrize(
    "wrong",
    [
        Order(1, "no.such-place", "stop"),
        Order(1, "log.staged", "fail"),
        Order(1, "disk.sync", "fail", error="NOT_AN_ERROR"),
        Order(1, "log.staged", "stop", nth=0),
    ],
)
def test_wrong_orders_are_refused_as_a_whole(folder: Path, wrong: Order) -> None:
    """Wrong orders are refused as a whole, with the reason."""
    order(folder, Order(2, "log.staged", "hold", seconds=600), wrong)
    arm(folder)

    failpoint("log.staged")

    (line,) = (folder / REACHED).read_bytes().splitlines()
    assert msgspec.json.decode(line, type=Reached).problem


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"orders": 1}', b"[" * 100_000])
def test_orders_that_are_none_are_refused(folder: Path, raw: bytes) -> None:
    """A file of half-written orders arms nothing."""
    (folder / ORDERS).write_bytes(raw)

    arm(folder)

    assert SEAM.handler is None


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """A missing folder of orders is an error, and not a run without faults."""
    with pytest.raises(ConfigError, match=VARIABLE):
        arm(tmp_path / "none")


def test_a_stopped_process_ends_there_by_sigkill(tmp_path: Path) -> None:
    """A process ends by SIGKILL at the ordered pass, after writing that down."""
    order(tmp_path, Order(1, "log.staged", "stop", nth=3))
    program = (
        "import sys; from pathlib import Path; from dledger.program.arming import arm; "
        "from dledger.failpoints import failpoint\n"
        "arm(Path(sys.argv[1]))\n"
        "for number in range(9): print(number, flush=True); failpoint('log.staged')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGKILL, ["0", "1", "2"])
    assert happened(tmp_path) == [("log.staged", "stop")]
