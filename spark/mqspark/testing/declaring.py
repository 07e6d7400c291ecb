"""Declarations of plants: each changes what it is planted in, in place, where `draw` says.

A fault names the property that finds it and the word that must be among what is found; more may be,
since one lie often contradicts several properties. What only looks odd has an explanation, and
nothing may be found.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
Plant: TypeAlias = Callable[[T, random.Random], None]


@dataclass(frozen=True)
class Fault(Generic[T]):
    """A plant, and the finding that it must lead to: a property, and its word for it."""

    number: int
    what: str
    plant: Plant[T]

    @property
    def name(self) -> str:
        """The fault's name for a person, and for a test's id."""
        return f"{self.number} {self.plant.__name__}"


class Plants(Generic[T]):
    """The plants of a module: its faults, and what is innocent."""

    def __init__(self) -> None:
        self.faults: list[Fault[T]] = []
        self.innocents: list[Plant[T]] = []

    def fault(self, number: int, what: str) -> Callable[[Plant[T]], Plant[T]]:
        """Declare a fault that property `number` must find, by the word `what`."""

        def declare(plant: Plant[T]) -> Plant[T]:
            self.faults.append(Fault(number, what, plant))
            return plant

        return declare

    def innocent(self, plant: Plant[T]) -> Plant[T]:
        """Declare what only looks odd."""
        self.innocents.append(plant)
        return plant
