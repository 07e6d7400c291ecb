"""Lets a task wait for the one call of a callback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

from dledger.errors import DledgerError

ValueT = TypeVar("ValueT")


class Outcome(Generic[ValueT]):
    """Pass `set` as the callback, then `await wait()` for what it is called with."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._values: list[ValueT | DledgerError] = []

    def set(self, value: ValueT | DledgerError) -> None:
        """Set the outcome: the callback of what is waited for."""
        self._values.append(value)
        self._event.set()

    async def wait(self) -> ValueT:
        """The value, when it is there. Raises it if it is an error."""
        await self._event.wait()
        value = self._values[0]
        if isinstance(value, DledgerError):
            raise value
        return value


async def outcome_of(
    begin: Callable[[Callable[[ValueT | DledgerError], None]], object],
) -> ValueT:
    """The value with which the callback that is given to `begin` is called. Raises what `begin`
    raises, and the value if it is an error."""
    outcome: Outcome[ValueT] = Outcome()
    begin(outcome.set)
    return await outcome.wait()
