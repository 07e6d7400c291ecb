"""Subscription groups: the configs of consumer groups. Part of the replicated state. Pure.

A group is made by an operator or by its first consumer. It *begins* with its first consumer.
Its present members are not part of this state: see `mqbroker.requests.groups.membership`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from dledger.remoting.bodies import DataVersion, SubscriptionGroupConfig


class Beginning(NamedTuple):
    """The index of the entry by which a group's first consumer came, and its writer's time."""

    entry: int
    at_ms: int


class SubscriptionGroups:
    """All group configs, with their version."""

    def __init__(self) -> None:
        self._configs: dict[str, SubscriptionGroupConfig] = {}
        self._begun: dict[str, Beginning] = {}
        self.version = DataVersion(counter=0, timestamp=0)

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._configs.values())

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """A group's config, if it exists."""
        return self._configs.get(group)

    def beginning(self, group: str) -> Beginning | None:
        """When a group had its first consumer; None if it had none."""
        return self._begun.get(group)

    def put(
        self,
        configs: Iterable[SubscriptionGroupConfig],
        now_ms: int,
        begun: Beginning | None = None,
    ) -> None:
        """Make or change groups. If nothing differs the version stays. With `begun` their first
        consumers have come."""
        configs = list(configs)
        if begun is not None:
            for config in configs:
                self._begun.setdefault(config.group_name, begun)
        changed = [config for config in configs if self.get(config.group_name) != config]
        self._configs.update((config.group_name, config) for config in changed)
        if changed:
            self._changed(now_ms)

    def delete(self, group: str, now_ms: int) -> None:
        """Remove a group, if it exists."""
        self._begun.pop(group, None)
        if self._configs.pop(group, None) is not None:
            self._changed(now_ms)

    def beginnings(self) -> dict[str, Beginning]:
        """The beginnings of groups, for a snapshot."""
        return dict(self._begun)

    def restore(
        self,
        configs: Iterable[SubscriptionGroupConfig],
        version: DataVersion,
        begun: Mapping[str, Beginning] | None = None,
    ) -> None:
        """Take over what a snapshot kept. The groups in one of an older version, which has no
        beginnings, began before everything that is noted."""
        self._configs = {config.group_name: config for config in configs}
        self._begun = dict.fromkeys(self._configs, Beginning(0, 0)) if begun is None else {**begun}
        self.version = version

    def _changed(self, now_ms: int) -> None:
        self.version = DataVersion(counter=self.version.counter + 1, timestamp=now_ms)
