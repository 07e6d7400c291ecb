"""Fencing: whether a member that commits an offset, or sends a message back, still holds the
queue's lock.

An orderly consumer that stood still past its lock wakes up with messages in hand that another
member has by now. Our clients name the token of their lock, which no other owner ever gets: what
comes with another token than the lock's is refused. Stock clients know none; theirs does not count
while a member with another client id holds the lock. A queue that nobody has locked is nobody's
business here.

Of a queue that others of the group pop, who pulls commits nothing while they have messages in hand:
its offset would be passed over what they don't acknowledge.

Looked at is the applied state of who leads. A commit that passes comes before the next owner is
granted the lock, and that one's question for the offset waits for it.
"""

from __future__ import annotations

from dledger.remoting.codes import ResponseCode
from mqbroker.refusal import Refused
from mqbroker.requests.core import Core
from mqbroker.requests.groups.membership import Membership
from mqbroker.state.groups.locks import QueueKey


class Fence:
    """Checks that the member that commits an offset holds the queue's lock."""

    def __init__(self, core: Core, membership: Membership) -> None:
        self._core = core
        self._membership = membership

    def check(self, key: QueueKey, token: int) -> None:
        """Refuse a token that is not that of the queue's lock."""
        held = self._core.machine.locks.held(key)
        if held is None or held.token != token:
            owner = "nobody" if held is None else held.client_id
            raise Refused(
                ResponseCode.NOT_LOCK_OWNER,
                f"queue {key.queue_id} of {key.topic!r} is not locked for group {key.group!r} with "
                f"token {token}: {owner} has it. Give it up, and lock it anew",
            )

    def counts(self, key: QueueKey, connection_id: int) -> bool:
        """Whether a commit without a token counts."""
        held = self._core.machine.locks.held(key)
        if held is None or held.end_ms <= self._core.lock_clock.now_ms():
            return True
        group = self._membership.consumers(key.group)
        member = group.members.get(connection_id) if group is not None else None
        return member is None or member.client_id == held.client_id

    def is_popped(self, key: QueueKey) -> bool:
        """Whether members of the group have messages of a queue in hand that they popped."""
        queue = self._core.machine.popped.queue(*key)
        if queue is None or not queue.count:
            return False
        now_ms = self._core.assignments.now_ms()
        return any(each.visible_ms > now_ms for each in queue.deliveries())
