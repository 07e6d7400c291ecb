"""Watchers of a state: they hear what a replica has applied, and whether it leads."""

from __future__ import annotations

from collections.abc import Sequence

from mqbroker.state.aside import SetAside
from mqbroker.state.control import LockQueues, UnlockQueues
from mqbroker.state.derived.entry_index import EntryIndex
from mqbroker.state.derived.indexing import Due


class Watcher:
    """Hears what was applied, on this replica only; this one ignores it. Called within `apply`."""

    def messages_arrived(self, index: EntryIndex, origin: str) -> None:
        """The messages of an entry can be pulled from now on. `origin`: where they waited."""

    def timers_set(self, dues: Sequence[Due]) -> None:
        """Messages began to wait for their time that did not wait for one before."""

    def set_aside(self, kind: int, aside: SetAside) -> None:
        """An entry of this kind has no effect, on any replica."""

    def topics_changed(self, topics: Sequence[str]) -> None:
        """Tell that topics were made, changed or deleted."""

    def groups_changed(self, groups: Sequence[str]) -> None:
        """Tell that consumer groups were made, changed or deleted."""

    def locks_changed(self, change: LockQueues | UnlockQueues) -> None:
        """A client has asked for locks, by which the locks' time went on, or given some up."""

    def settings_changed(self) -> None:
        """Config keys have other values than before, on all replicas."""

    def users_changed(self) -> None:
        """A user was made, changed or removed."""

    def leading(self, term: int) -> None:
        """Called when this replica leads, and has applied all entries of earlier terms."""

    def following(self, leader: str | None, term: int) -> None:
        """Called when this replica does not lead; `leader` is the node id of the one that does, if
        known."""
