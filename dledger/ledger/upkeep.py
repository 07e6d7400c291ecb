"""Looks after a replica's files: prepares segments, writes checkpoints, checks for damage.

The next segment is prepared before it is needed, checkpoints keep restarts short, segments that are
no longer needed are removed, and sealed ones are read again, slowly, so that damage is found while
peers can still repair it. The slow work is done in threads; the log decides what to do.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import trio

from dledger import limits
from dledger.errors import Rot
from dledger.failpoints import failpoint
from dledger.ledger.config import LedgerConfig
from dledger.log.recovery.scrub import SLICE_BYTES, Scrub
from dledger.log.store import SegmentedLog
from dledger.observe import get_logger
from dledger.world import world

log = get_logger("dledger.ledger.upkeep")


class Upkeep:
    """The loops that look after one replica's log.

    `scrubs`: whether there are peers that could repair rot. `resign` is called before this node
    stops for a repair.
    """

    def __init__(
        self,
        config: LedgerConfig,
        store: SegmentedLog,
        scrubs: Callable[[], bool],
        resign: Callable[[], Awaitable[None]],
    ) -> None:
        self._node_id = config.node_id
        self._log = store
        self._scrubs = scrubs
        self._resign = resign
        self._kept_from = 1
        self._wake = trio.Event()
        self._saved_checkpoint = b""
        self._commits_are_durable = config.flush == "sync"
        self._prepare_at = 0.0
        self._rot: Rot | None = None
        self._rotten = trio.Event()
        #: Bytes of the log that were removed with old segments.
        self.reclaimed_bytes = 0

    def found(self, rot: Rot) -> None:
        """Note damage that a reader has found. If peers can repair it, this node stops for the
        repair; else it goes on and serves what is not damaged."""
        if self._rot is None or str(rot) != str(self._rot):
            log.error("log damaged", node=self._node_id, reason=str(rot))
            self._rot = rot
        if self._scrubs():
            self._rotten.set()

    async def rot_loop(self) -> None:
        """Wait until a reader finds damage, and stop for it. Raises Rot."""
        await self._rotten.wait()
        assert self._rot is not None
        await self._resign()
        raise self._rot

    def keep_from(self, index: int) -> None:
        """Remove, soon, the segments that lie wholly before the entry `index`."""
        self._kept_from = max(self._kept_from, index)
        self._wake.set()

    def look(self) -> None:
        """The log has grown: it may want its next segment, or a checkpoint."""
        if self._wants_segment_now or self._must_note:
            self._wake.set()

    @property
    def _wants_segment_now(self) -> bool:
        return self._log.wants_segment and trio.current_time() >= self._prepare_at

    @property
    def _must_note(self) -> bool:
        """Whether the next start must know of the newest segment.

        Not if commits do not wait for disks: then a power loss may take committed entries from a
        majority, and a node that knows of their commit refuses to follow it.
        """
        return self._commits_are_durable and self._log.checkpoints.is_due

    async def housekeeping_loop(self) -> None:
        """Prepare the next segment before it is needed; leave checkpoints."""
        checkpoint_at = trio.current_time() + limits.CHECKPOINT_PERIOD_S
        while True:
            if self._wants_segment_now:
                await self._prepare_segment()
            await self._remove_old()
            if self._must_note or trio.current_time() >= checkpoint_at:
                await self._save_checkpoint()
                checkpoint_at = trio.current_time() + limits.CHECKPOINT_PERIOD_S
            with trio.move_on_at(min(checkpoint_at, self._again_at())):
                await self._wake.wait()
            self._wake = trio.Event()

    def _again_at(self) -> float:
        """When work that could not be done is tried again."""
        soon = trio.current_time() + limits.UPKEEP_AGAIN_S
        if self._log.holds_before(self._kept_from):
            return soon
        return max(soon, self._prepare_at) if self._log.wants_segment else math.inf

    async def _save_checkpoint(self) -> None:
        content = self._log.checkpoints.take()
        if content != self._saved_checkpoint:
            failpoint("log.checkpoint")
            await world().in_thread(self._log.checkpoints.save, content)
            self._saved_checkpoint = content
        self._log.release_idle()

    async def _prepare_segment(self) -> None:
        space = self._log.space
        lacked = space.lacking
        try:
            prepared = await world().in_thread(self._log.next_segment.prepare)
        except OSError as error:
            if not space.lacks(error):
                raise
            self._prepare_at = trio.current_time() + limits.NO_SPACE_RETRY_S
            if lacked is None:
                log.error("disk full", node=self._node_id, reason=space.lacking)
            return
        self._log.adopt_segment(prepared)
        if lacked is not None:
            log.info("disk has room again", node=self._node_id)

    async def _remove_old(self) -> None:
        began_at = self._log.first_position
        job = self._log.trim(self._kept_from)
        if job is None:
            return
        removed_bytes = self._log.first_position - began_at
        try:
            await world().in_thread(job.run)
        except OSError as error:
            log.warning("old segments not removed", node=self._node_id, reason=str(error))
            return
        self.reclaimed_bytes += removed_bytes
        log.info(
            "old segments removed",
            node=self._node_id,
            segments=len(job.paths),
            first_index=job.head.first_index,
        )

    async def scrub_loop(self) -> None:
        """Read sealed segments again, slowly. On rot the node stops, and the next start repairs
        it."""
        scrub = Scrub(self._log)
        while self._scrubs():
            part = scrub.next_slice(self._log.kept_index)
            if part is None:
                await trio.sleep(limits.SCRUB_PAUSE_S)
                continue
            try:
                scrub.checked(part, await world().in_thread(part.check))
            except FileNotFoundError:
                pass  # removed by retention meanwhile
            except Rot:
                await self._resign()
                raise
            except OSError as error:
                # Too few descriptors, say: that tells nothing about what is on the disk.
                log.warning("not checked for damage", node=self._node_id, reason=str(error))
                await trio.sleep(limits.SCRUB_AGAIN_S)
            await trio.sleep(SLICE_BYTES / limits.SCRUB_BYTES_PER_S)
