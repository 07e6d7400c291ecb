"""Long work in slices: a generator does a little at each step, and its return value is the result.

What holds the event loop for seconds keeps peers and clients waiting, and a leader that is not
heard is deposed. So such work is a generator of short steps; whoever drives it takes one slice of
some milliseconds, many steps at once, in each turn of its loop.

Slices make millions of objects. The garbage collector would look at all of them again and again, so
it rests within a slice; and between slices, too, of work whose objects stay.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from typing import TypeVar

from dledger.limits import LOOP_SLICE_S

T = TypeVar("T")
StepT = TypeVar("StepT")


def in_slices(
    steps: Generator[StepT, None, T],
    slice_s: float = LOOP_SLICE_S,
    clock_s: Callable[[], float] = time.perf_counter,
    *,
    stays: bool = False,
) -> Generator[StepT, None, T]:
    """Drive `steps`, as many at once as fit in a slice. A step that yields something else than the
    one before ends a slice, too, since its driver must know. `stays`: the objects that the steps
    make are not garbage for as long as the process lives."""
    was_enabled, before = gc.isenabled(), list[StepT]()
    try:
        while True:
            gc.disable()
            until = clock_s() + slice_s
            while True:
                step = next(steps)
                changed, before = before not in ([], [step]), [step]
                if changed or clock_s() >= until:
                    break
            if was_enabled and not stays:
                gc.enable()
            yield step
    except StopIteration as end:
        if stays:
            gc.freeze()
        result: T = end.value
        return result
    finally:
        if was_enabled:
            gc.enable()


def drained(steps: Generator[object, None, T]) -> T:
    """The result of all steps, taken at once: where nobody waits, as at a start."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
