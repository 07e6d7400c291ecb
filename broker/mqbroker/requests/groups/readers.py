"""Who reads a queue for a group, and whose commits of its offset therefore count. Pure.

Consumers share queues out by themselves; the broker sees only who pulls. A member that lost a queue
may still commit what it had read of it, after the new reader has committed more: taken as it is,
that would move the group back. So a commit that goes back counts only from the member that pulled
last, which may have sought back, or from somebody who is no consumer: a tool that sets the offset.

A reset tells the group where to go on. Members that don't know yet would undo it with their next
commit; until one pulls from the new place theirs don't count. The first pull from another place is
answered with the new one (code 21), as RocketMQ 5 does; where it pulls after that is the member's
own decision. All this is a leader's memory of pulls, and begins anew with each leadership.
"""

from __future__ import annotations

from mqbroker import limits
from mqbroker.state.locks import QueueKey


class Readers:
    """The last reader of each queue, and resets that its group has not followed yet."""

    def __init__(self) -> None:
        self._last: dict[QueueKey, int] = {}
        self._resets: dict[QueueKey, tuple[int, bool]] = {}  # where to, and whether said so

    def clear(self) -> None:
        """A leadership begins: nothing is known."""
        self._last.clear()
        self._resets.clear()

    def pulled(self, key: QueueKey, connection_id: int, offset: int) -> int | None:
        """Note a pull. If the group was reset and this reader does not know: where to go on."""
        if len(self._last) >= limits.CONSUMER_OFFSETS_MAX:
            self._last.clear()  # members' commits that go back wait for their next pull
        self._last[key] = connection_id
        if key not in self._resets:
            return None
        target, told = self._resets[key]
        if told or offset == target:
            del self._resets[key]
            return None
        self._resets[key] = (target, True)
        return target

    def reset(self, key: QueueKey, offset: int) -> None:
        """The group is to go on from `offset`. Beyond the bound only the commit says so."""
        if len(self._resets) < limits.RESETS_PENDING_MAX:
            self._resets[key] = (offset, False)

    def counts(
        self,
        key: QueueKey,
        offset: int,
        *,
        committed: int | None,
        connection_id: int,
        is_consumer: bool,
    ) -> bool:
        """Whether a commit counts; `committed` is the offset that the group has now."""
        if not is_consumer:
            self._resets.pop(key, None)
            return True
        if key in self._resets:
            return offset == self._resets[key][0]
        if committed is None or offset >= committed:
            return True
        return self._last.get(key) == connection_id
