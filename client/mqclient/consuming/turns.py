"""Turns among the queues that have messages. Pure.

Each queue is asked in turn, so one that is never empty does not keep the others waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Protocol

from dledger.remoting.json_dialect import MessageQueue
from mqclient.consuming.progress import QueueProgress


class Reading(Protocol):
    """The reader of a queue."""

    @property
    def progress(self) -> QueueProgress:
        """The progress of the queue."""

    @property
    def may_hand_out(self) -> bool:
        """Whether what it has may be begun now."""

    def took(self) -> None:
        """There is room in its buffer again."""


class Turns:
    """Goes round the queues of `readings`, which may be others at each call."""

    def __init__(self, readings: Callable[[], Mapping[MessageQueue, Reading]]) -> None:
        self.readings = readings
        self._turn = 0

    def next(self, fits: Callable[[QueueProgress], bool]) -> Reading | None:
        """The next one that has messages and that `fits`."""
        readings = [*self.readings().values()]
        turn = self._turn % max(1, len(readings))
        for number in chain(range(turn, len(readings)), range(turn)):
            reading = readings[number]
            progress = reading.progress
            if not (progress.buffered or progress.returned):
                continue  # as most are, often
            if progress.has_messages and fits(progress) and reading.may_hand_out:
                self._turn = number + 1
                return reading
        return None
