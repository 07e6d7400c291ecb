"""Subscription groups: the configs of consumer groups. Part of the replicated state. Pure.

A group is made by an operator or by its first consumer. Its present members are not part of this
state: see `mqbroker.requests.groups.membership`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dledger.remoting.bodies import DataVersion, SubscriptionGroupConfig


class SubscriptionGroups:
    """All group configs, with their version."""

    def __init__(self) -> None:
        self._configs: dict[str, SubscriptionGroupConfig] = {}
        self.version = DataVersion(counter=0, timestamp=0)

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._configs.values())

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """A group's config, if it exists."""
        return self._configs.get(group)

    def put(self, configs: Iterable[SubscriptionGroupConfig], now_ms: int) -> None:
        """Make or change groups. If nothing differs the version stays."""
        changed = [config for config in configs if self.get(config.group_name) != config]
        self._configs.update((config.group_name, config) for config in changed)
        if changed:
            self._changed(now_ms)

    def delete(self, group: str, now_ms: int) -> None:
        """Remove a group, if it exists."""
        if self._configs.pop(group, None) is not None:
            self._changed(now_ms)

    def restore(self, configs: Iterable[SubscriptionGroupConfig], version: DataVersion) -> None:
        """Take over what a snapshot kept."""
        self._configs = {config.group_name: config for config in configs}
        self.version = version

    def _changed(self, now_ms: int) -> None:
        self.version = DataVersion(counter=self.version.counter + 1, timestamp=now_ms)
