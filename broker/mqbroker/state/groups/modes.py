"""The mode in which a group's members read a topic if the broker shares its queues out. Pure.

RocketMQ's message request mode: by PULL, as everything is that nothing is said of, or by POP. With
POP `share` says how many further members a queue is shared with; below 1 it is all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

#: (topic, group, mode, share), as a snapshot keeps it.
ModeRow: TypeAlias = tuple[str, str, str, int]


class RequestMode(NamedTuple):
    """ "PULL" or "POP", and with how many a queue is shared."""

    mode: str = "PULL"
    share: int = -1


class RequestModes:
    """The modes that were set, by topic and group."""

    def __init__(self) -> None:
        self._modes: dict[tuple[str, str], RequestMode] = {}

    def __len__(self) -> int:
        return len(self._modes)

    def get(self, topic: str, group: str) -> RequestMode | None:
        """The mode that was set, if there is one."""
        return self._modes.get((topic, group))

    def put(self, topic: str, group: str, mode: str, share: int) -> None:
        """Set the mode in which a group reads a topic, and with how many members a queue is
        shared."""
        self._modes[topic, group] = RequestMode(mode, share)

    def delete_topic(self, topic: str) -> None:
        """Forget those of a topic."""
        self._modes = {key: mode for key, mode in self._modes.items() if key[0] != topic}

    def delete_group(self, group: str) -> None:
        """Forget those of a group."""
        self._modes = {key: mode for key, mode in self._modes.items() if key[1] != group}

    def dump(self) -> list[ModeRow]:
        """The rows for a snapshot."""
        return [(*key, *mode) for key, mode in self._modes.items()]

    def restore(self, rows: Iterable[ModeRow]) -> None:
        """Take over what a snapshot kept."""
        self._modes = {
            (topic, group): RequestMode(mode, share) for topic, group, mode, share in rows
        }
