"""Speed of a run's machine, which stretches the bounds on pauses."""

from __future__ import annotations

import threading
import time

import pytest
import trio

from mqchaos.limits import LOOK_WORK_S, SLOWNESS_MAX
from mqchaos.run import machine_speed
from mqchaos.run.machine_speed import MachineSpeed, work_s


def paced(*times: float) -> MachineSpeed:
    """A machine whose looks took `times` as long as they should."""
    looked = MachineSpeed()
    looked.looks = [each * LOOK_WORK_S for each in times]
    return looked


@pytest.mark.parametrize(
    ("times", "slowness"),
    [
        ((), 1.0),
        ((0.5,) * 20, 1.0),
        ((3.0,) * 20, 3.0),
        ((1.0,) * 19 + (50.0,), 1.0),
        ((1.0,) * 8 + (4.0,) * 12, 4.0),
        ((50.0,) * 20, SLOWNESS_MAX),
    ],
)
def test_the_bounds_grow_with_the_work_and_only_so_far(
    times: tuple[float, ...], slowness: float
) -> None:
    """A fast machine shortens none, one odd look stretches none."""
    assert paced(*times).slowness == pytest.approx(slowness)


async def test_the_machine_is_looked_at_until_the_run_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine is measured again and again, until the run is over."""
    monkeypatch.setattr(machine_speed, "LOOK_EVERY_S", 0.001)
    looking = MachineSpeed()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(looking.keep_looking)
        while len(looking.looks) < 5:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert all(look > 0 for look in looking.looks)


def test_that_others_want_the_processor_excuses_nobody() -> None:
    """A thread that must share it takes longer by the clock, not by its own time."""
    alone_s, stop = min(work_s() for _ in range(20)), threading.Event()

    def busy() -> None:
        while not stop.is_set():
            pass

    others = [threading.Thread(target=busy) for _ in range(4)]
    for other in others:
        other.start()
    began_s = time.monotonic()
    shared_s = min(work_s() for _ in range(10))
    took_s = (time.monotonic() - began_s) / 10
    stop.set()
    for other in others:
        other.join()
    assert took_s > 2 * alone_s
    assert shared_s < 2 * alone_s
