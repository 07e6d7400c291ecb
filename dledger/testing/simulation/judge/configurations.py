"""The judge's own record of a group's configurations, independent of the nodes'.

A configuration is known by the index and term of its entry. Which one a log holds last follows
from the log alone: those known, from the newest on, until one is in it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dledger.log.store import SegmentedLog
from dledger.raft.membership.configuration import Configuration

Key = tuple[int, int]
"""Index and term of a configuration's entry; (0, 0) is that of the config files."""
Committed = Mapping[int, tuple[int, int]]
"""Term and chain CRC of each committed entry, by index."""
VOTERS_MIN = 2
"""A group of more than one never becomes a group of one: there would be no second copy."""


def is_majority(node_ids: Collection[str], voters: Collection[str]) -> bool:
    """Whether more than half of the voters are among these nodes."""
    return 2 * len({*node_ids} & {*voters}) > len(voters)


class Configurations:
    """Configurations of one run by key: the voters and the members."""

    def __init__(self, initial: frozenset[str]) -> None:
        self.voters: dict[Key, frozenset[str]] = {(0, 0): initial}
        self._members: dict[Key, frozenset[str]] = {(0, 0): initial}

    def learn(self, configuration: Configuration) -> bool:
        """Note a configuration that a node knows; returns whether it is new."""
        key = configuration.index, configuration.term
        new = key not in self.voters
        if new:
            self.voters[key] = frozenset(configuration.voters)
            self._members[key] = frozenset(configuration.members)
        return new

    def of(
        self, log: SegmentedLog, committed: Committed, before: int = 1 << 62
    ) -> tuple[Key, frozenset[str]]:
        """The last configuration in a log, before an index: its key, and its voters."""
        for key in sorted(self.voters, reverse=True):
            index, term = key
            if index >= before or index > log.last_index:
                continue
            if not index or (
                log.reader.header(index).term == term
                if index >= log.first_index
                else committed.get(index, (None,))[0] == term
            ):
                return key, self.voters[key]
        raise LookupError("the first configuration is in every log")

    def problem_of(
        self, key: Key, log: SegmentedLog, committed: Committed, commit_index: int
    ) -> str | None:
        """A fault of a change that a leader has just made, if there is one."""
        index, term = key
        before, voters = self.of(log, committed, index)
        if len(voters ^ self.voters[key]) > 1:
            return f"changes more than one voter: {sorted(voters)} to {sorted(self.voters[key])}"
        if len(self.voters[key]) < VOTERS_MIN:
            return f"leaves only {sorted(self.voters[key])}, and no copy of what is lost there"
        if before[0] > commit_index:
            return f"makes a change before that of entry {before[0]} is committed"
        if commit_index >= log.first_index and log.reader.header(commit_index).term != term:
            return "makes a change before an entry of its own term is committed"
        return None

    def last_committed(self, committed: Committed) -> int:
        """The index of the last one that is committed."""
        return self._last_committed(committed)[0]

    def _last_committed(self, committed: Committed) -> Key:
        # Where one was cut, the entry in its place may be committed: the term tells.
        return max(
            (index, term)
            for index, term in self.voters
            if not index or committed.get(index, (None,))[0] == term
        )

    def possible(self, committed: Committed) -> list[tuple[frozenset[str], frozenset[str]]]:
        """The last one that is committed, and all later ones: any of them may be in force.

        For each the members, and the voters."""
        last = self._last_committed(committed)
        return [
            (self._members[key], voters)
            for key, voters in self.voters.items()
            if key == last or key[0] > last[0]
        ]
