"""The members that read queues for their groups, so that their commits of the offsets count. Pure.

Consumers share queues out by themselves; the broker only sees which of them pulls. A member that
lost a queue may still commit what it had read, after the new reader has committed more. That commit
would move the group back. So a commit that goes back counts only from the member that pulled last,
which may have sought back, or from a tool, which is no consumer and sets the offset.

While members disagree about who has a queue, both pull it in turns, so who pulled last proves
little. Our clients therefore say of each commit whether the member itself went back. Of stock ones
it has to be guessed.

A member of ours that takes a queue over says so when it asks for the offset, and one that gives it
up says so once it has committed. In between the first may know that the other still has messages
in hand. Stock members say nothing, and nobody waits for them.

A reset gives the group a new offset. Members that don't know it yet would undo it with their next
commit; so their commits don't count until one of them pulls from the new offset. The first pull
from another offset is answered with the new one (code 21), as RocketMQ 5 does; from then on the
member may pull from where it likes. Only the leader remembers this, and it begins anew with each
leadership.
"""

from __future__ import annotations

from mqbroker import limits
from mqbroker.state.groups.locks import QueueKey


class Readers:
    """The last reader of each queue, and resets that its group has not followed yet."""

    def __init__(self) -> None:
        self._last: dict[QueueKey, int] = {}
        self._resets: dict[
            QueueKey, tuple[int, bool]
        ] = {}  # the new offset, and whether a pull was answered with it

    def clear(self) -> None:
        """A leadership begins: forget everything."""
        self._last.clear()
        self._resets.clear()

    def topic_ended(self, topic: str) -> None:
        """A topic was deleted: nobody follows a reset of it any more."""
        self._last = {key: last for key, last in self._last.items() if key.topic != topic}
        self._resets = {key: reset for key, reset in self._resets.items() if key.topic != topic}

    def pulled(self, key: QueueKey, connection_id: int, offset: int) -> int | None:
        """Note which connection pulls a queue. If the group was reset and this reader does not know
        it, returns the new offset."""
        if len(self._last) >= limits.READERS_MAX:
            self._last.clear()  # now a member must pull again before a commit of it may go back
        self._last[key] = connection_id
        if key not in self._resets:
            return None
        target, answered = self._resets[key]
        if answered or offset == target:
            del self._resets[key]
            return None
        self._resets[key] = (target, True)
        return target

    def reader(self, key: QueueKey) -> int | None:
        """The connection that pulled a queue last or took it over, and has not given it up."""
        return self._last.get(key)

    def take(self, key: QueueKey, connection_id: int) -> None:
        """A member is about to pull."""
        if len(self._last) < limits.READERS_MAX:
            self._last[key] = connection_id

    def give_up(self, key: QueueKey, connection_id: int) -> None:
        """A member pulls no more, and has committed what it had read."""
        if self._last.get(key) == connection_id:
            del self._last[key]

    def reset(self, key: QueueKey, offset: int) -> None:
        """The group is to go on from `offset`. Beyond the bound this is not kept: only the commit
        tells it."""
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
        sought_back: bool | None = None,
    ) -> bool:
        """Whether a commit counts; `committed` is the group's present offset, `sought_back` what
        the member says of itself, if it does."""
        if not is_consumer:
            self._resets.pop(key, None)
            return True
        if key in self._resets:
            return offset == self._resets[key][0]
        if committed is None or offset >= committed:
            return True
        last = self._last.get(key)
        if sought_back is None:
            return last == connection_id
        # The member may not have pulled since this leadership began; it commits this only once.
        return sought_back and last in (None, connection_id)
