"""Whether a replica is well, whether clients can be sent to it, and whether it may be stopped.

It may be stopped if the group goes on without it: if more than half of the voters are connected
members beside it, and none of those, as far as a leader knows, lacks much of the log.
"""

from __future__ import annotations

from mqbroker import limits
from mqbroker.requests.core import Core


def leader_of(core: Core) -> str | None:
    """The node id of the leader, if it is this replica or this one hears it; a follower goes on to
    know the last one, which may be gone."""
    role = core.role
    if role.serving:
        return role.node_id
    heard = core.log.status.hears_leader and role.leader_id != role.node_id
    return role.leader_id if heard else None


class BrokerHealth:
    """Judge of one replica: whether it is alive, ready, and safe to stop."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def alive(self) -> str | None:
        """The reason why it takes no part until it is restarted, or None."""
        fenced = self._core.log.status.fenced
        return None if fenced is None else f"this replica takes no further part: {fenced}"

    def ready(self) -> str | None:
        """The reason why it neither serves nor follows, or None."""
        status = self._core.log.status
        if (problem := self.alive()) is not None:
            return problem
        if status.repairing is not None:
            return f"its log is being repaired: {status.repairing}"
        if not status.counted:
            return "its copy of the log is not complete yet, and counts for no majority"
        if leader_of(self._core) is None:
            return "the group has no leader that it hears"
        return None

    def safe_to_stop(self) -> str | None:
        """The reason why the group would not go on without it, or None."""
        status = self._core.log.status
        voters = [each for each in status.members if each.role == "voter"]
        if status.node_id not in {each.node_id for each in voters}:
            return None
        others = [
            each.node_id
            for each in voters
            if each.node_id != status.node_id
            and each.linked
            and (each.lag_entries or 0) <= limits.SAFE_TO_STOP_LAG_ENTRIES
        ]
        needed = len(voters) // 2 + 1
        if len(others) >= needed:
            return None
        return (
            f"{needed} of {len(voters)} members must be up to date without this one, and only "
            f"{len(others)} are: {', '.join(others) or 'none'}"
        )
