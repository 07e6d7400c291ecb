"""Drafts of messages on their way to the log, and who gets their outcomes.

A draft is in flight from the moment when it is appended until its entry is applied, or has failed.
A sender whose answer is late, or whose connection broke, asks for the same again meanwhile: it
waits with the first. All are answered once, in the order in which they asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from dledger.errors import AppendError
from dledger.failpoints import failpoint
from dledger.raft.appends import Appended
from mqbroker.leader.appending.drafts import MessagesDraft
from mqbroker.refusal import Refused

OutcomeT = TypeVar("OutcomeT")
KeyT = TypeVar("KeyT")
FlightT = TypeVar("FlightT", bound="Flight")

Tell: TypeAlias = Callable[[OutcomeT | Refused | AppendError], None]
"""Is called once, with the outcome or with why there is none."""


class Stored(msgspec.Struct, frozen=True):
    """Where a batch lies in the log. `positions` are those of its records, one by one."""

    positions: Sequence[int]
    offsets: Sequence[tuple[int, int]]
    """(queue id, queue offset of the first record), for each run."""
    store_timestamp_ms: int
    duplicate: bool


def _stays() -> None:
    """The flight is in no table."""


class Flight:
    """A draft on its way, and those who wait for its outcome."""

    __slots__ = ("_waiting", "draft", "leave")

    def __init__(self, draft: MessagesDraft, *tell: Tell[Stored]) -> None:
        self.draft = draft
        #: Takes the flight out of its table.
        self.leave: Callable[[], object] = _stays
        self._waiting = [*tell]

    def join(
        self, tell: Tell[Stored], check: Callable[[Stored], Stored | Refused] | None = None
    ) -> None:
        """Wait, as a repeat, for the first copy's outcome. It gets a duplicate, or what `check`
        makes of that."""

        def tell_duplicate(outcome: Stored | Refused | AppendError) -> None:
            if isinstance(outcome, Stored):
                outcome = replace(outcome, duplicate=True)
                outcome = outcome if check is None else check(outcome)
            tell(outcome)

        self._waiting.append(tell_duplicate)

    def land(self, outcome: Appended | AppendError) -> None:
        """The draft's entry is applied, or failed: tell all who wait."""
        failpoint("batch.applied")
        self.leave()
        result: Stored | AppendError
        if isinstance(outcome, AppendError):
            result = outcome
        else:
            start, draft = outcome.body_position, self.draft
            positions = [start + offset for offset in draft.starts]
            result = Stored(positions, draft.offsets, draft.store_timestamp_ms, duplicate=False)
        for tell in self._waiting:
            tell(result)
        failpoint("batch.answered")


class InFlight(Generic[KeyT, FlightT]):
    """Flights by what makes a repeat known. A flight leaves by itself when it lands."""

    def __init__(self) -> None:
        self._flights: dict[KeyT, FlightT] = {}

    def __iter__(self) -> Iterator[KeyT]:
        return iter(self._flights)

    def get(self, key: KeyT) -> FlightT | None:
        """The flight of a key, if there is one."""
        return self._flights.get(key)

    def add(self, key: KeyT, flight: FlightT) -> None:
        """A draft is to be appended: from now on its repeats wait with it."""
        self._flights[key] = flight
        flight.leave = lambda: self._flights.pop(key, None)
