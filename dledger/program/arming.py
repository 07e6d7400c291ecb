"""Failpoints of one process, armed by whoever started it, through a folder that both know.

The environment names the folder. There a chaos run writes what shall happen, and tells the process
by a signal that it has: nothing listens anywhere, and who may do that may also kill the process.
Whatever is done is written down first, so that a run sees that it took effect::

    orders.json    what shall happen where (`Orders`); read at the start and at each SIGUSR1
    reached.jsonl  what has happened, one `Reached` a line

A process without that variable in its environment never loads this module.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Final, Literal

import msgspec

from dledger.errors import ConfigError
from dledger.failpoints import FAILING, PLACES, SEAM, TORN_WRITE, VARIABLE
from dledger.limits import HELD_LOOK_S

ORDERS: Final = "orders.json"
REACHED: Final = "reached.jsonl"


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An order for a place, from its n-th pass from now on.

    `stop` kills the process, `hold` keeps the thread there for so long or until another order
    comes, `slow` keeps it so long at every pass, `fail` raises the error of that name at every pass
    from the n-th on. `number` tells it from others for the same place.
    """

    number: int
    place: str
    action: Literal["stop", "hold", "slow", "fail"]
    nth: int = 1
    seconds: float = 0.0
    error: str = "ENOSPC"

    def problem(self) -> str | None:
        """The fault of the order, if it has one."""
        if self.place not in PLACES:
            return f"there is no place {self.place!r}"
        if self.action == "fail" and self.place not in FAILING:
            return f"nothing fails at {self.place}; it does at {', '.join(sorted(FAILING))}"
        if self.action == "fail" and not isinstance(getattr(errno, self.error, None), int):
            return f"there is no error {self.error!r}"
        return None if self.nth > 0 and self.seconds >= 0 else "nth and seconds must be positive"


class Orders(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults that a process is to cause in itself. `number` tells orders apart; `notes`: write
    down each place once.

    `ahead_ms`: by how much the broker's wall clock is ahead of the machine's; with `strobe_s` it
    is ahead and behind in turn, so long each time.
    """

    number: int = 0
    orders: tuple[Order, ...] = ()
    ahead_ms: int = 0
    strobe_s: float = 0.0
    notes: bool = False


class Reached(msgspec.Struct, frozen=True):
    """A report: all orders were taken (`place` is empty), or one was carried out, or a place noted.

    `number`: of the order, or of all orders. `problem`: why they were not taken.
    """

    number: int
    place: str
    action: str
    pid: int
    problem: str = ""


class _Armed:
    """The orders in force, and how often their places were passed."""

    def __init__(self, folder: Path) -> None:
        self._orders_file = folder / ORDERS
        self._reached = os.open(
            folder / REACHED, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._lock = threading.Lock()
        self._noted: set[str] = set()
        self._passes: dict[int, int] = {}
        self._by_place: dict[str, Order] = {}
        self._all = Orders()

    def read(self) -> None:
        """Take the orders in the file. What can't be taken is said, and nothing is in force."""
        problem = ""
        try:
            every = msgspec.json.decode(self._orders_file.read_bytes(), type=Orders)
            problem = next((found for order in every.orders if (found := order.problem())), "")
        except FileNotFoundError:
            every = Orders()
        except (OSError, msgspec.DecodeError, RecursionError) as error:
            every, problem = Orders(), str(error)
        self._all = Orders(every.number) if problem else every
        self._by_place = {order.place: order for order in self._all.orders}
        SEAM.ahead_ms = self._all.ahead_ms
        if self._all.strobe_s > 0:
            strobe = partial(self._strobe, self._all)
            threading.Thread(target=strobe, name="strobe", daemon=True).start()
        # A thread that is held looks at a set that can't change under it.
        SEAM.handler = self.reached if self._by_place or self._all.notes else None
        self._say(every.number, "", "orders", problem)

    def reached(self, place: str) -> bool:
        """Do what is ordered here; returns whether a write shall be done by halves."""
        if self._all.notes and place not in self._noted:
            self._noted.add(place)
            self._say(0, place, "noted")
        order = self._by_place.get(place)
        if order is not None:
            self._carry_out(order)
        return place == "disk.write" and TORN_WRITE in self._by_place

    def _carry_out(self, order: Order) -> None:
        with self._lock:
            passes = self._passes.get(order.number, 0) + 1
            self._passes[order.number] = passes
        if passes < order.nth or (passes > order.nth and order.action in ("stop", "hold")):
            return
        if passes == order.nth:
            self._say(order.number, order.place, order.action)
        if order.action == "stop":
            os.kill(os.getpid(), signal.SIGKILL)
            threading.Event().wait()
        if order.action == "fail":
            number: int = getattr(errno, order.error)
            raise OSError(number, os.strerror(number))
        self._hold(order)

    def _strobe(self, orders: Orders) -> None:
        """Move the clock to and fro while these orders hold."""
        while self._all is orders:
            SEAM.ahead_ms = -SEAM.ahead_ms
            time.sleep(orders.strobe_s)
        SEAM.ahead_ms = self._all.ahead_ms

    def _hold(self, order: Order) -> None:
        until = time.monotonic() + order.seconds
        while (left_s := until - time.monotonic()) > 0 and self._by_place.get(order.place) == order:
            time.sleep(min(left_s, HELD_LOOK_S))

    def _say(self, number: int, place: str, action: str, problem: str = "") -> None:
        reached = Reached(number, place, action, os.getpid(), problem)
        os.write(self._reached, msgspec.json.encode(reached) + b"\n")


def arm(folder: Path) -> None:
    """Take orders from this folder from now on. Raises ConfigError if there is no such folder."""
    try:
        armed = _Armed(folder)
    except OSError as error:
        raise ConfigError(f"{VARIABLE} names {folder}: {error.strerror}") from error

    def at_signal(_number: int, _frame: FrameType | None) -> None:
        armed.read()

    signal.signal(signal.SIGUSR1, at_signal)
    armed.read()
