"""Group commit: one sync at a time, each covering all that was written before it began.

With `flush = "sync"` a sync begins in the very step that has written, if none is under way; what is
written meanwhile is the next one's. Every acknowledgement waits for a sync, so handing it to the
thread and hearing of its end take no turn of the event loop that is not needed. A single entry is
synced within the step if the disk is quicker than a thread. With other settings a sync begins some
time after the first entry that is not durable, or as soon as somebody waits for it.

A node that has nothing to sync is not woken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from dledger import limits
from dledger.log.jobs import SyncJob
from dledger.log.store import SegmentedLog
from dledger.metrics.text import Buckets
from dledger.observe import get_logger
from dledger.world import steady_s, world

log = get_logger(__name__)


class Syncing:
    """The syncs of one log. At the end of each `on_end` is called, which raises Fenced if there was
    an error; and once the next one has begun, `then`."""

    def __init__(
        self,
        node_id: str,
        store: SegmentedLog,
        after_s: float,
        on_end: Callable[[SyncJob, OSError | None], None],
        then: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._log = store
        self._after_s = after_s
        self._on_end = on_end
        self._then = then
        self._worker = world().worker("sync")
        self._job: SyncJob | None = None
        #: How long the disk took for the last sync, and how many in a row were quick.
        self._took_s = 0.0
        self._quick = 0
        #: How long the syncs of this log took.
        self.times = Buckets(limits.SYNC_BOUNDS_S)
        self._closed = False
        #: Whether the next sync follows the present one at once.
        self._hurried = False
        self._unsynced = trio.Event()
        self._wanted = trio.Event()
        #: Somebody waits for the end of a sync.
        self._awaited: trio.Event | None = None

    def written(self) -> None:
        """Something was written that is not durable. Raises Fenced."""
        if self._after_s:
            self._unsynced.set()
        else:
            self._begin(here=self._quick >= limits.SYNCS_QUICK_MIN)

    async def more_durable(self) -> None:
        """Sync soon; return when a sync has ended, or there was nothing to sync for a while."""
        self._unsynced.set()
        self._wanted.set()
        if self._awaited is None:
            self._awaited = trio.Event()
        with trio.move_on_after(limits.NOTHING_TO_SYNC_S):
            await self._awaited.wait()

    def retire(self) -> None:
        """Another log replaces this one, or it is closed: wake all who wait, so that they ask
        again."""
        self._tell_ended()

    def _tell_ended(self) -> None:
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.set()

    async def begin_loop(self) -> None:
        """Begin the syncs that somebody waits for, or whose time has come. Raises Fenced."""
        while True:
            await self._unsynced.wait()
            with trio.move_on_after(self._after_s):
                await self._wanted.wait()
            self._unsynced, self._wanted = trio.Event(), trio.Event()
            self._begin()

    async def end_loop(self) -> None:
        """Hear of each sync that has ended, until cancelled; then no thread uses the log. Raises
        Fenced after a sync that failed, be it the last one: who closes the log would sync it again,
        the kernel would say that all is well, and a restart would not look at what is lost."""
        try:
            while True:
                self._end(await self._outcome_of(self._worker.ended))
        finally:
            self._closed = True
            error = await self._outcome_of(self._worker.close)
            if self._job is not None:
                self._log.finish_sync(self._job, error)

    def _begin(self, *, here: bool = False) -> None:
        """Begin a sync, or have one follow that which is under way. `here`: without the thread, if
        it is of a single entry."""
        if self._job is not None:
            self._hurried = True
            return
        if self._closed:
            return
        alone = self._log.last_index - self._log.durable_index == 1
        self._job = job = self._log.start_sync()
        if job is None:
            return
        if not here or not alone:
            self._worker.begin(partial(self._sync, job))
            return
        try:
            self._sync(job)
        except OSError as error:
            self._end(error)
        else:
            self._end(None)

    def _sync(self, job: SyncJob) -> None:
        """Sync, in the thread or here. Raises OSError."""
        began_s = steady_s()
        try:
            job.run()
        finally:
            self._took_s = steady_s() - began_s

    @staticmethod
    async def _outcome_of(wait: Callable[[], Awaitable[None]]) -> OSError | None:
        """The disk's error in the sync that is waited for; None if it succeeded."""
        try:
            await wait()
        except OSError as error:
            return error
        return None

    def _end(self, error: OSError | None) -> None:
        """A sync has ended; the next one begins before the engine uses what this one made
        durable."""
        took_s = self._took_s
        self.times.add(took_s)
        self._quick = self._quick + 1 if took_s <= limits.SYNC_HERE_S else 0
        if took_s > limits.SLOW_SYNC_S:
            log.warning("slow sync", sync_s=round(took_s, 3), node=self._node_id)
        job, self._job = self._job, None
        assert job is not None
        hurried, self._hurried = self._hurried, False
        self._on_end(job, error)
        if hurried:
            self._begin()
        if self._awaited is not None:
            self._tell_ended()
        self._then()
