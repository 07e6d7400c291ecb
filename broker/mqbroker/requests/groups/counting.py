"""The offset where a pull goes on, and commits that count: for handlers of pulls and of commits.

The rules are those of `mqbroker.state.groups.places` (a queue's offsets, a topic's life), `readers`
(which member reads), `earlier` (who may have a position of a topic's earlier life) and `fencing`
(locks, and messages that were popped).
"""

from __future__ import annotations

from collections.abc import Callable

from dledger.net import Connection
from dledger.remoting.codes import ResponseCode
from dledger.remoting.names import TOOLS_GROUP
from mqbroker.leader.offset_commits import OffsetCommits
from mqbroker.refusal import Refused, system_error
from mqbroker.requests.core import Core
from mqbroker.requests.groups.earlier import Earlier
from mqbroker.requests.groups.fencing import Fence
from mqbroker.requests.groups.membership import Membership
from mqbroker.requests.groups.readers import Readers
from mqbroker.state.groups.locks import QueueKey
from mqbroker.state.groups.places import fault, is_other_life


class Counting:
    """Answers by the applied state, what is on its way to it, and what this leader has seen."""

    def __init__(
        self,
        core: Core,
        commits: OffsetCommits,
        readers: Readers,
        earlier: Earlier,
        fence: Fence,
        given_up: Callable[[str, str, int], None],
    ) -> None:
        """`given_up` is called with the group, topic and queue when a member gives a queue up."""
        self._machine = core.machine
        self._commits = commits
        self._readers = readers
        self._earlier = earlier
        self._given_up = given_up
        self.fence = fence

    def pulled(
        self, key: QueueKey, connection_id: int, offset: int, life: int | None
    ) -> int | None:
        """Note that a client pulls a queue from `offset` on. If its reader has to go on elsewhere,
        returns the offset.

        `life` is the one that the reader names for its position, if it names any.
        """
        moved = self._readers.pulled(key, connection_id, offset)
        if life is not None:
            return (
                self._commits.resumes(key)
                if is_other_life(self._machine, key.topic, life)
                else moved
            )
        if key.group != TOOLS_GROUP:
            self._earlier.pulled(key, connection_id)
        if self._earlier.is_behind(key, connection_id):
            target = self._commits.resumes(key)
            if self._earlier.corrects(key, connection_id, offset, target):
                return target
        return moved

    def is_free(self, key: QueueKey) -> bool:
        """Whether no member has a queue: its last reader has given it up."""
        return self._readers.reader(key) is None

    def is_anothers(self, key: QueueKey, connection_id: int, membership: Membership) -> bool:
        """Whether another member has a queue still, and will say when it gives it up."""
        reader = self._readers.reader(key)
        return reader not in (None, connection_id) and membership.tells(key.group, reader)

    def take(self, key: QueueKey, connection_id: int, membership: Membership) -> bool:
        """A member takes a queue over. Returns whether another one has it still."""
        if self.is_anothers(key, connection_id, membership):
            return True
        if membership.tells(key.group, connection_id):
            self._readers.take(key, connection_id)
        return False

    def give_up(self, key: QueueKey, connection_id: int) -> None:
        """A member has given a queue up: others may have it, once its commits are applied."""
        self._readers.give_up(key, connection_id)
        if self.is_free(key):
            self._given_up(*key)

    def counts(
        self,
        key: QueueKey,
        offset: int,
        connection: Connection,
        *,
        is_consumer: bool,
        sought_back: bool | None = None,
        life: int | None = None,
    ) -> bool:
        """Whether a commit counts, whose lock was looked at already.

        Refused if it names what the queue does not have, or another life of its topic.
        """
        reason = fault(self._machine, key.topic, key.queue_id, offset)
        if reason is not None:
            raise system_error(f"{reason}: nothing was committed")
        if is_other_life(self._machine, key.topic, life):
            raise Refused(
                ResponseCode.OFFSET_MOVED_ON,
                f"{key.topic!r} was deleted and made again: offset {offset} is of its life {life}, "
                f"which is over. Nothing was committed",
            )
        if is_consumer and self.fence.is_popped(key):
            return False
        if life is None and self._earlier.is_behind(key, connection.id):
            return offset == self._commits.resumes(key)
        return self._readers.counts(
            key,
            offset,
            committed=self._commits.latest(key),
            connection_id=connection.id,
            is_consumer=is_consumer,
            sought_back=sought_back,
        )
