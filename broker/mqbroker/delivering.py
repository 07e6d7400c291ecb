"""The loops of a leader that deliver messages whose delay is over, and renew old timed messages.

`mqbroker.leader.waiting.deliveries` decides which, and appends them; the loops here call it when
something is due.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import trio

from dledger.errors import AppendError, Busy, StorageError
from dledger.ledger.outcome import Outcome
from dledger.observe import get_logger
from dledger.program.pulse import look
from dledger.raft.appends import Appended, OnDone
from dledger.world import world
from mqbroker import limits
from mqbroker.leader.waiting.deliveries import Deliveries, Old
from mqbroker.refusal import NotApplied
from mqbroker.requests.core import Core
from mqbroker.upkeep.alarm import Signal
from mqbroker.upkeep.retention import policy_of

_log = get_logger("mqbroker.broker")


class Delivering:
    """The loops of one replica; they do nothing while another one leads."""

    def __init__(self, core: Core, deliveries: Deliveries) -> None:
        self._core = core
        self._deliveries = deliveries
        #: Set when a message may be due.
        self.due = Signal()
        self._repeats_logged = 0

    async def deliver_due(self) -> None:
        """Deliver the messages whose delay is over, one entry after the other."""
        wait_s = math.inf
        if self._core.role.serving:
            try:
                if await self._append_move(self._deliveries.deliver):
                    return
                wait_ms = self._deliveries.wait_ms()
                if wait_ms is not None:
                    wait_s = min(world().seldom_s(limits.DELIVERY_SLEEP_S_MAX), wait_ms / 1000)
            except StorageError as error:
                # A queue is being rebuilt, or an entry repaired: due messages wait.
                _log.error("delayed messages wait", reason=str(error))
                wait_s = limits.AFTER_FAULT_S
        await trio.sleep(limits.DELIVERY_PAUSE_S)
        with trio.move_on_after(max(0.0, wait_s - limits.DELIVERY_PAUSE_S)):
            await self.due.wait()

    async def renew(self) -> None:
        """Renew the timed messages that would hold up the removal of old segments."""
        await look(limits.RENEW_LOOK_S)
        renew = partial(self._deliveries.renew, self._old_part())
        while self._core.role.serving and await self._append_move(renew):
            pass

    def _old_part(self) -> Old:
        """The part of the log that is half way to its removal."""
        policy, core = policy_of(self._core.config), self._core
        age_s, size_bytes = policy.age_max_s, policy.size_bytes_max
        return Old(
            -1 if age_s is None else core.clock_ms() - int(age_s * 500),
            -1 if size_bytes is None else core.log.status.end_position - size_bytes // 2,
        )

    async def _append_move(self, append: Callable[[OnDone], bool]) -> bool:
        """Deliver or renew one entry of messages; returns whether there were any, and that is
        done."""
        dropped, put_off = self._deliveries.dropped, self._deliveries.put_off
        outcome: Outcome[Appended] = Outcome()
        try:
            if not append(outcome.set):
                return False
            await outcome.wait()
        except NotApplied as error:
            _log.error("delayed messages wait", reason=str(error))
            await trio.sleep(limits.AFTER_FAULT_S)
            return False
        except AppendError as error:
            _log.info("delayed messages wait", reason=str(error))
            if isinstance(error, Busy):  # the disk may be full
                await trio.sleep(error.retry_after_s)
            return False
        self._core.rates.repeats_put_off.total += self._deliveries.put_off - put_off
        if self._deliveries.dropped > dropped:
            count = self._deliveries.dropped - dropped
            _log.warning(
                "delayed messages dropped", count=count, reason="their topic is deleted, or unknown"
            )
        return True

    def log_repeats(self) -> None:
        """Log how many repeats came later than they say, if any did since the last look."""
        count, self._repeats_logged = (
            self._core.rates.repeats_put_off.total - self._repeats_logged,
            self._core.rates.repeats_put_off.total,
        )
        if count:
            _log.warning(
                "repeated messages come later than they say",
                count=count,
                reason=f"a topic's repeats have {limits.REPEATED_BYTES_PER_S_TOPIC_MAX} bytes/s, "
                f"those of all {limits.REPEATED_BYTES_PER_S_MAX}",
            )
