"""Handlers of programs without an event loop: each call has a thread of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from mqclient import limits

HandledT = TypeVar("HandledT")
"""The argument of a handler: a message, or a batch."""


def in_threads(
    handler: Callable[[HandledT], None], concurrency: int, timeout_s: float | None
) -> Callable[[HandledT], Awaitable[None]]:
    """Call a handler in threads of its own. With a `timeout_s`, a handler that takes too long is
    left alone with its thread."""
    threads = CapacityLimiter(concurrency + limits.ABANDONED_HANDLERS_MAX)

    async def handle(handled: HandledT) -> None:
        await to_thread.run_sync(
            handler, handled, limiter=threads, abandon_on_cancel=timeout_s is not None
        )

    return handle
