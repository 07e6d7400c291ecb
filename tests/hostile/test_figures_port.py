"""Strangers at the port for figures: requests without a pause, and guessed passwords."""

from __future__ import annotations

import itertools
import math

import pytest
import trio

from dledger.limits import LOOP_TURN_MAX_S, WRONG_PROOFS_AT_ONCE
from dledger.metrics import limits
from dledger.metrics.limits import CONNECTIONS_MAX
from dledger.metrics.requests import Answer, Asked
from dledger.metrics.serving import serve_figures
from dledger.net import turns
from dledger.net.faults import Faults
from dledger.net.turns import Turns
from dledger.trust.guard import Guard, Mode
from dledger.trust.users import User, Users
from dledger.trust.wrapping import Wrapping

SECRET = b"the secret of this cluster"
TICK_S = 0.001
REQUESTS = 50


class TurnsCounted(trio.abc.Instrument):
    """How many answers were begun in the turn of the loop that had most."""

    def __init__(self) -> None:
        self.most = self.all = self._now = 0

    def before_io_wait(self, timeout: float) -> None:
        """Note the most work of a turn, at its end."""
        self.most, self._now = max(self.most, self._now), 0

    async def answer(self, _: Asked) -> Answer:
        """Figures of 100 KiB, there at once."""
        self._now += 1
        self.all += 1
        return Answer(200, bytes(100 * 1024), keeps=True)


@pytest.mark.parametrize("connections", [1, CONNECTIONS_MAX])
async def test_requests_without_a_pause_share_the_loop(
    connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes a millisecond here: a turn has few answers, however many
    requests have come."""
    for patience in ("REQUEST_S", "ANSWER_S"):  # however slow the machine is
        monkeypatch.setattr(limits, patience, math.inf)
    counted, ticks = TurnsCounted(), itertools.count()
    clocked = Turns(lambda: next(ticks) * TICK_S)
    turns._turns.set(clocked)
    trio.lowlevel.add_instrument(clocked)
    trio.lowlevel.add_instrument(counted)
    requests = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n" * REQUESTS

    async def ask(port: int) -> None:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(requests)
            await stream.send_eof()
            async for _ in stream:
                pass

    async with trio.open_nursery() as nursery:
        port = await nursery.start(serve_figures, counted.answer, "127.0.0.1", 0, Faults())
        async with trio.open_nursery() as asking:
            for _ in range(connections):
                asking.start_soon(ask, port)
        nursery.cancel_scope.cancel()
    assert counted.all == REQUESTS * connections
    assert counted.most <= 2 * LOOP_TURN_MAX_S / TICK_S


def test_passwords_can_not_be_guessed_fast() -> None:
    """An address with too many wrong passwords is refused the right one, too, for a while.

    It is let in from elsewhere. Signatures are counted apart.
    """
    table, now_ms = Users(), [0]
    table.put(User("u", Wrapping(SECRET).wrap("u", "right"), is_super=True))
    guard = Guard(SECRET, lambda: (table,), None, lambda: now_ms[0], bytes(32))  # type: ignore[arg-type]
    guard.mode = Mode.ENFORCE

    def told(password: str, source: str = "10.0.0.1", name: str = "u") -> str | None:
        return guard.password_refusal(name, password, source, "C")

    assert told("right") is None
    for number in range(WRONG_PROOFS_AT_ONCE):
        assert told(f"{number}", name="u" if number % 2 else f"{number}") is not None
    assert "too many wrong passwords" in str(told("right"))
    assert told("right", "10.0.0.2") is None
    now_ms[0] += 60_000
    assert told("right") is None
