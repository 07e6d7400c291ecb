"""The topics, groups and messages of this broker, for rights that depend on more than the
request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dledger.remoting.message import REAL_TOPIC, properties_decode
from dledger.remoting.names import WAITING_TOPICS
from dledger.remoting.record import Record
from mqbroker.state.machine import Machine


@dataclass(eq=False, slots=True)
class Looking:
    """The state of one replica, for `dledger.trust.rights`. `find_record` gives the message that
    begins at a position."""

    cluster: str
    _machine: Machine
    _find_record: Callable[[int], Record | None]

    def has_topic(self, topic: str) -> bool:
        """Whether the replicated state has a topic of this name."""
        return self._machine.topics.get(topic) is not None

    def has_group(self, group: str) -> bool:
        """Whether a consumer group exists."""
        return self._machine.groups.get(group) is not None

    def topic_at(self, position: int) -> str | None:
        """The topic that the message at a position was sent to."""
        record = self._find_record(position)
        if record is None:
            return None
        if record.topic in WAITING_TOPICS:
            return properties_decode(record.properties).get(REAL_TOPIC, record.topic)
        return record.topic
