"""A watchdog over the event loop: it logs each turn that takes too long, with what ran.

During a turn of the loop no client is read or answered; a leader that stands still for a second is
deposed. trio tells an instrument when a turn begins (it comes back from waiting for sockets) and
ends (it waits again), which costs two readings of a clock. A separate thread checks now and then
how long the present turn takes, and if it is long notes where the loop's thread is. The loop's own
thread logs the line at the end of the turn; so it is logged even if the other thread could not look
because one long call held the interpreter.

The thread looks every `WATCHDOG_IDLE_LOOK_S` in an idle process, every `WATCHDOG_LOOK_S` in a busy
one.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import NamedTuple

import trio

from dledger import limits
from dledger.net.connection import Connection
from dledger.observe import get_logger
from dledger.remoting.command import Command

_log = get_logger(__name__)
_HANDLES: CodeType = Connection._handle.__code__
_FRAMES_SHOWN = 8


class Seen(NamedTuple):
    """The work at which the thread found the loop."""

    stack: str
    request: int | None = None
    peer: str | None = None


class Watchdog(trio.abc.Instrument):
    """Notes long turns of the loop. `clock_s` is a monotonic clock."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._thread_id = threading.get_ident()
        self._stopped = threading.Event()
        #: When the present turn began; 0.0 while the loop waits.
        self._began_s = 0.0
        self._turns = 0
        self._seen: Seen | None = None
        self._seen_turn = -1
        #: Turns above the bound, and the longest.
        self.stalls = 0
        self.longest_s = 0.0

    def after_io_wait(self, timeout: float) -> None:
        """Note that a turn of the loop begins."""
        self._turns += 1
        self._began_s = self._clock_s()

    def before_io_wait(self, timeout: float) -> None:
        """Note that a turn of the loop ends."""
        began_s, self._began_s = self._began_s, 0.0
        if began_s and (took_s := self._clock_s() - began_s) > limits.LOOP_STALL_S:
            self._tell(took_s)

    def look(self) -> None:
        """If the present turn is long already, note what runs. Called by the watching thread."""
        turn, began_s = self._turns, self._began_s
        if not began_s or self._clock_s() - began_s < limits.LOOP_STALL_S / 2:
            return
        frame = sys._current_frames().get(self._thread_id)
        if frame is not None and turn == self._turns and self._seen_turn != turn:
            self._seen, self._seen_turn = _seen(frame), turn

    def watch(self) -> None:
        """Look now and then until stopped; the body of the watching thread."""
        pause_s, turns = limits.WATCHDOG_LOOK_S, 0
        while not self._stopped.wait(pause_s):
            self.look()
            busy = self._began_s or self._turns - turns > limits.WATCHDOG_BUSY_TURNS
            turns = self._turns
            pause_s = limits.WATCHDOG_LOOK_S if busy else limits.WATCHDOG_IDLE_LOOK_S

    def stop(self) -> None:
        """End the watch: `watch`, in its thread, returns."""
        self._stopped.set()

    def _tell(self, took_s: float) -> None:
        self.stalls += 1
        self.longest_s = max(self.longest_s, took_s)
        seen = self._seen if self._seen_turn == self._turns else None
        seen = seen or Seen("not seen: one call held the interpreter all the time")
        _log.warning(
            "loop stalled",
            stall_s=round(took_s, 3),
            ran=seen.stack,
            request=seen.request,
            peer=seen.peer,
        )


@contextmanager
def watched_loop() -> Iterator[Watchdog]:
    """Watch the loop that runs this, until the block is left."""
    watchdog = Watchdog()
    trio.lowlevel.add_instrument(watchdog)
    thread = threading.Thread(target=watchdog.watch, name="watchdog", daemon=True)
    thread.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()
        trio.lowlevel.remove_instrument(watchdog)


def _seen(frame: FrameType) -> Seen:
    """The innermost calls, the last one first; and the request that they serve, if it is one."""
    calls = (
        f"{each.f_code.co_name} ({each.f_code.co_filename.rpartition('/')[2]}:{line})"
        for each, line in traceback.walk_stack(frame)
        if not each.f_code.co_filename.startswith("<frozen")  # the machinery of imports
    )
    stack = " < ".join(itertools.islice(calls, _FRAMES_SHOWN))
    outer: FrameType | None = frame
    while outer is not None:
        if outer.f_code is _HANDLES:
            return _served(stack, outer.f_locals.get("request"), outer.f_locals.get("self"))
        outer = outer.f_back
    return Seen(stack)


def _served(stack: str, request: object, connection: object) -> Seen:
    if not isinstance(request, Command) or not isinstance(connection, Connection):
        return Seen(stack)
    host, port = connection.peer
    return Seen(stack, request.code, f"{host}:{port}")
