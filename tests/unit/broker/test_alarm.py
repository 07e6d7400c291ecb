"""Loops sleep until something is due, and look at the same moments when they only look."""

from __future__ import annotations

import pytest
import trio

from dledger.program.pulse import beat, next_beat
from mqbroker.upkeep.alarm import Alarm

pytestmark = pytest.mark.usefixtures("autojump_clock")


async def test_an_alarm_goes_off_at_the_earliest_time_asked_for() -> None:
    """An alarm wakes its sleeper once, also if an earlier time is set during the wait."""
    alarm = Alarm(trio.current_time)
    began, rang = trio.current_time(), list[float]()

    async def ring() -> None:
        while True:
            await alarm.wait()
            rang.append(round(trio.current_time() - began, 3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ring)
        await trio.sleep(100)
        assert rang == [], "nobody asked for anything"
        alarm.set(began + 130)
        await trio.sleep(1)
        alarm.set(began + 110)
        alarm.set(began + 120)
        await trio.sleep(100)
        assert rang == [110]
        alarm.set(began)
        await trio.sleep(1)
        assert rang == [110, 201]
        nursery.cancel_scope.cancel()


async def test_who_looks_now_and_then_looks_when_the_others_do() -> None:
    """Loops that wait for the next beat wake up together, so an idle process wakes up less."""
    looked: list[float] = []

    async def look(start_s: float) -> None:
        await trio.sleep(start_s)
        for _ in range(3):
            await beat()
            looked.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for start_s in (0.1, 0.5, 0.9):
            nursery.start_soon(look, start_s)
    assert len(looked) == 9
    assert len(set(looked)) == 3
    assert next_beat(1.0) > trio.current_time()
