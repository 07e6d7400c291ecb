"""An event loop of asyncio on virtual time, and a run of trio within it.

Time passes when every task waits, and then at once, as with a MockClock of trio that jumps by
itself. The servers of a cluster run on trio, as a guest of this loop: in the same thread, on the
same time. Both are idle if the selector of asyncio has nothing, and trio ran no task in two turns:
data that it read in one turn it hands to its tasks in the next. Then time jumps to the next
deadline of either.

Bytes are in memory meanwhile (`dledger.testing.virtual`), so between them both see all data on its
way. Threads of `asyncio.to_thread` and of executors are invisible to both: time stands still while
they work.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import trio
from outcome import Outcome
from trio.abc import Clock, Instrument

from dledger.testing.virtual import VirtualWorld
from dledger.world import move_to
from mqlocal.limits import IDLE_TURNS, THREADS_LOOK_S


class Guest(Clock, Instrument):
    """A run of trio on a loop's time. The loop says when it goes on."""

    def __init__(self, loop: VirtualLoop, main: Callable[[], Awaitable[None]]) -> None:
        #: The next time at which something is due, while no task can go on.
        self.deadline = math.inf
        #: Settled when the run has ended.
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._turn: Callable[[], object] | None = None
        self._ran = False
        trio.lowlevel.start_guest_run(
            main,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            run_sync_soon_not_threadsafe=self._keep,
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
            clock=self,
            instruments=[self],
        )

    def go_on(self) -> bool:
        """Run a turn of trio. Returns whether any task ran in it."""
        turn, self._turn, self._ran = self._turn, None, False
        if turn is not None:
            turn()
        return self._ran

    def _keep(self, turn: Callable[[], object]) -> None:
        self._turn = turn

    def _done(self, outcome: Outcome[None]) -> None:
        self._loop.guest = None
        if self.ended.done():
            return
        try:
            self.ended.set_result(outcome.unwrap())
        except BaseException as error:
            self.ended.set_exception(error)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Note that a task can go on."""
        self._ran = True

    def start_clock(self) -> None:
        """Begin: the loop's time has begun already."""

    def current_time(self) -> float:
        """Time of the asyncio loop, in seconds."""
        return self._loop.time()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """The guest's own wait: none, since the loop waits."""
        self.deadline = deadline
        return 0.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time, which begins at 0:
    `asyncio.Runner(loop_factory=VirtualLoop)`."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._threads = 0
        self._idle = 0
        self.guest: Guest | None = None
        self.world = VirtualWorld(self)
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def current_time(self) -> float:
        """Time of this loop, by the name that trio's clocks have for it."""
        return self._now_s

    def create_task(  # type: ignore[override]  # later versions of Python hand on more
        self,
        coro: Coroutine[Any, Any, Any],
        *,
        context: contextvars.Context | None = None,
        **others: Any,
    ) -> asyncio.Task[Any]:
        """A task in the loop's world, whoever starts it."""
        context = contextvars.copy_context() if context is None else context
        try:
            context.run(move_to, self.world)
        except RuntimeError:  # it is the caller's own
            move_to(self.world)
        return super().create_task(coro, context=context, **others)

    def run_in_executor(  # type: ignore[override]  # the types of its parameters are its own
        self, executor: Any, func: Callable[..., Any], *arguments: Any
    ) -> Any:
        """Work in a thread, for which time stands still."""
        future = super().run_in_executor(executor, func, *arguments)
        self._threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._threads -= 1

    async def shutdown_default_executor(self, *patience: Any) -> None:
        """Wait for the threads in real time."""
        self._threads += 1
        try:
            await super().shutdown_default_executor(*patience)
        finally:
            self._threads -= 1

    def guest_goes_on(self) -> bool:
        """Give trio's run a turn. Returns whether a task ran."""
        return self.guest is not None and self.guest.go_on()

    def idles(self) -> bool:
        """Note a turn in which no task could go on. Returns whether none will until time passes."""
        self._idle += 1
        return self.guest is None or self._idle >= IDLE_TURNS

    def is_at_work(self) -> None:
        """Note a turn in which a task could go on."""
        self._idle = 0

    def pass_time(self, left_s: float) -> bool:
        """Move time to the next deadline, in `left_s` or trio's. Returns whether there is any."""
        due_s = min(self._now_s + left_s, math.inf if self.guest is None else self.guest.deadline)
        if self._threads or due_s == math.inf:
            return False
        self._now_s = max(self._now_s, due_s)
        return True


class _Selector(selectors.EpollSelector):
    """The place where the loop would wait."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """The files that are ready; none if tasks may go on by now, or time has passed."""
        loop = self._loop
        ran = loop.guest_goes_on()
        found = super().select(0)
        if found or ran or (timeout is not None and timeout <= 0):
            loop.is_at_work()
            return found
        if not loop.idles() or loop.pass_time(math.inf if timeout is None else timeout):
            return found
        return super().select(THREADS_LOOK_S)  # only a thread can go on
