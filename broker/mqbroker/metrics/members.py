"""Figures of a replica's part in its group, and of the other members as it sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dledger.errors import StorageError
from dledger.metrics.text import Family, Sample, Writer
from mqbroker.metrics.health import leader_of
from mqbroker.metrics.sources import Sources


def _gauge(name: str, text: str) -> Family:
    return Family(f"dledger_raft_{name}", "gauge", text)


class MemberFigures:
    """Figures of this replica's role and term, and of the other members."""

    def __init__(self, sources: Sources) -> None:
        self._core = sources.core
        self._following = sources.following

    def pieces(self, writer: Writer) -> Iterator[str]:
        """The metric families as text, a piece at a time."""
        for part in (self._about_group, self._about_others):
            for family, samples in part():
                yield from writer.family(family, samples)

    def _about_group(self) -> Iterator[tuple[Family, Iterable[Sample]]]:
        core, status = self._core, self._core.log.status
        role = core.role
        for name, value, text in (
            ("role", role.serving, "1 for the leader, 0 for the others."),
            ("has_leader", leader_of(core) is not None, "Whether it leads, or hears a leader."),
            ("term", status.term, "The term of the group's leadership."),
            ("counted", status.counted, "Whether this copy counts for a majority."),
            ("fenced", status.fenced is not None, "Whether it takes no further part."),
            ("repairing", status.repairing is not None, "Whether its log is being repaired."),
            ("last_index", status.last_index, "The log's last entry."),
            ("commit_index", status.commit_index, "The last committed entry."),
            ("applied_index", status.applied_index, "The last applied entry."),
        ):
            yield _gauge(name, text), [({}, int(value))]
        text = "Leaders that this replica has followed."
        family = Family("dledger_raft_leader_changes_total", "counter", text)
        yield family, [({}, role.leader_changes)]
        text = "Elections that this replica has begun."
        family = Family("dledger_raft_elections_total", "counter", text)
        yield family, [({"reason": reason}, count) for reason, count in status.elections.items()]

    def _about_others(self) -> Iterator[tuple[Family, Iterable[Sample]]]:
        """Links, and what only a leader tells: how far the others are behind."""
        status, role = self._core.log.status, self._core.role
        others = [each for each in status.members if each.node_id != role.node_id]
        text = "Whether a member is connected to this one."
        yield (
            _gauge("peer_linked", text),
            [({"peer": each.node_id}, each.linked) for each in others],
        )
        lags = [
            ({"peer": each.node_id}, each.lag_entries)
            for each in others
            if role.serving and each.lag_entries is not None
        ]
        yield _gauge("peer_lag_entries", "Entries that a member may lack."), lags
        held = [(peer, status.last_index - lag) for peer, lag in lags]
        text = "Bytes of the log that a member may lack."
        yield _gauge("peer_lag_bytes", text), [(peer, self._bytes(index)) for peer, index in held]
        now_s, following = self._core.clock_s(), self._following
        text = "For how long a member may have lacked an entry, to a second."
        seconds = [(peer, following.behind_s(index, now_s)) for peer, index in held]
        yield _gauge("peer_lag_seconds", text), seconds

    def _bytes(self, held_index: int) -> int:
        try:
            return self._core.log.bytes_behind(held_index)
        except StorageError:  # the entry is being repaired
            status = self._core.log.status
            return status.end_position - status.first_position
