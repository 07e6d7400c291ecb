"""Queue locks as the leader grants them: within the table's bounds, and forgotten some time after
they have ended.

What is granted follows from the entries alone (`mqbroker.state.groups.locks`). The leader decides
which locks are asked for at all. At a bound it leaves out the new ones, so what a client holds is
renewed. A lock that ended long ago is given up by an entry, as its client would; but not while that
client's request for the same queue is on its way, or the entry would end a new lock.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from dledger.errors import AppendError, BadInput
from dledger.raft.appends import Appended
from mqbroker import limits
from mqbroker.leader.appending.in_flight import Tell
from mqbroker.leader.definitions import Definitions
from mqbroker.leader.lock_clock import LockClock
from mqbroker.refusal import Refused, busy, system_error
from mqbroker.state.control import LockQueues, UnlockQueues
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.machine import Machine

_KEPT_MS = int(limits.LOCK_KEPT_S * 1000)


class Locked(NamedTuple):
    """The queues that a client got, and the bound that kept it from getting more."""

    keys: Sequence[QueueKey]
    bound: str | None = None


def check_client_id(client_id: str) -> None:
    """Refuse the id of a client that is too long to be kept with each of its locks."""
    size = len(client_id.encode(errors="surrogatepass"))
    if size > limits.CLIENT_ID_BYTES_MAX:
        raise system_error(
            f"a client id of {size} bytes, {client_id[:40]!r}...; at most "
            f"{limits.CLIENT_ID_BYTES_MAX} are taken: give the client a shorter instance name"
        )


class Locking:
    """Locks and unlocks queues for consumers; used by the leader alone."""

    def __init__(self, machine: Machine, definitions: Definitions, clock: LockClock) -> None:
        self._machine = machine
        self._definitions = definitions
        self._clock = clock
        self._asked: Counter[QueueKey] = Counter()
        self._coming: Counter[str] = Counter()

    def held_for_s(self, client_id: str, key: QueueKey) -> float:
        """How long another client may keep a queue's lock, if it does not renew it; 0 if this one
        may have it now."""
        held = self._machine.locks.held(key)
        if held is None or held.client_id == client_id:
            return 0.0
        return max(0.0, (held.end_ms - self._clock.now_ms()) / 1000)

    def lock(
        self, group: str, client_id: str, queues: list[tuple[str, int]], tell: Tell[Locked]
    ) -> None:
        """Lock or renew queues that exist; `tell` gets the outcome. Raises Refused,
        BadInput."""
        check_client_id(client_id)
        self._definitions.ensure_group(group)
        locks, now_ms = self._machine.locks, self._clock.now_ms()
        keys = [QueueKey(group, *queue) for queue in queues]
        if not locks.obtainable(client_id, keys, now_ms):
            tell(Locked([]))  # there is nothing to log
            return
        new = [key for key in dict.fromkeys(keys) if locks.held(key) is None]
        room = locks.shares.room(group, self._coming[group], self._coming.total())
        bound = locks.shares.full(group) if len(new) > room else None
        left_out = {*new[room:]}
        keys = [key for key in keys if key not in left_out]
        if bound is not None and not keys:
            raise busy(bound)
        coming = len(new) - len(left_out)
        self._asked.update(keys)
        self._coming[group] += coming

        def end() -> None:
            self._asked -= Counter(keys)
            self._coming -= Counter({group: coming})

        def done(outcome: Appended | AppendError) -> None:
            end()
            if isinstance(outcome, AppendError):
                tell(outcome)
                return
            assert isinstance(outcome.result, list)  # what applying LockQueues returns
            tell(Locked(outcome.result, bound))

        wanted = [(key.topic, key.queue_id) for key in keys]
        try:
            self._definitions.change(LockQueues(group, client_id, wanted, now_ms), done)
        except Refused:
            return  # `done` was called
        except BadInput:
            end()
            raise

    async def unlock(self, group: str, client_id: str, queues: list[tuple[str, int]]) -> None:
        """Give up queues; those that the client does not hold stay. Raises AppendError."""
        locks = self._machine.locks
        keys = [QueueKey(group, *queue) for queue in queues]
        if any(self._asked[key] or locks.owner(key) == client_id for key in keys):
            await self._definitions.changed(UnlockQueues(group, client_id, queues))

    def forget_ended(self) -> None:
        """Give up some locks that ended long ago. Raises Refused if nothing can be appended now."""
        ended_ms = self._clock.now_ms() - _KEPT_MS
        by_owner: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
        found = self._machine.locks.ended_before(ended_ms)
        for key, lock in islice(found, limits.LOCKS_FORGOTTEN_MAX):
            if not self._asked[key]:
                by_owner[key.group, lock.client_id].append((key.topic, key.queue_id))
        for owner in islice(by_owner, limits.LOCK_OWNERS_FORGOTTEN_MAX):
            # Locks that were not given up are found again.
            self._definitions.change(UnlockQueues(*owner, by_owner[owner]))
