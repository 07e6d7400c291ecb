"""Tests under trio and under asyncio; the plugin of trio runs tests under trio alone."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

import anyio
import pytest

Test = Callable[..., Awaitable[None]]


def _under(loops: Sequence[Any]) -> Callable[[Test], Callable[..., None]]:
    """Decorator that runs a test under each of these loops, for 30 s at most."""

    def decorated(test: Test) -> Callable[..., None]:
        async def bounded(fixtures: dict[str, Any]) -> None:
            with anyio.fail_after(30):
                await test(**fixtures)

        @wraps(test)
        def run(loop: str, **fixtures: Any) -> None:
            anyio.run(bounded, fixtures, backend=loop)

        own = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
        parameters = inspect.signature(test).parameters.values()
        run.__signature__ = inspect.Signature([*parameters, own])  # type: ignore[attr-defined]
        return pytest.mark.parametrize("loop", loops)(run)

    return decorated


both_loops = _under(["trio", "asyncio"])
trio_first = _under(["trio", pytest.param("asyncio", marks=pytest.mark.long)])
"""Under asyncio only with `--all`. Tests of what the two do in their own ways, of tasks that wait,
give way or are cancelled, take `both_loops`."""
