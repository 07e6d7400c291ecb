"""The config of a node of a replicated log, and its status. Only values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dledger import limits
from dledger.metrics.text import Buckets
from dledger.raft.membership.changes import MemberStatus
from dledger.raft.roles import Timing

if TYPE_CHECKING:
    from dledger.tls.servers import ServerContexts
    from dledger.trust.rolling import Secrets

__all__ = ["LedgerConfig", "LedgerStatus", "MemberStatus"]


@dataclass(frozen=True, slots=True)
class LedgerConfig:
    """The configuration of a node.

    `peers` names every node of the group, this one too, with host and port of its peer port. Once
    members were added or removed, the log has the list of members, and `peers` only says where this
    node listens. `services`: the addresses where the nodes serve the group's users; the group tells
    them to all members. `flush`: "sync" acknowledges entries that are durable on a majority.
    "interval" acknowledges entries that a majority holds in the kernel's memory, and syncs every
    `flush_interval_s`: a power failure of a majority loses entries acknowledged since the last sync
    but one. "async" leaves syncing to the kernel, and only syncs every 5 s so that restarts stay
    short.
    `preferred_leader`: the node that gets leadership back when it has been caught up for a while.
    `secret`: the nodes prove to each other that they know it; needed unless the peer port is on
    loopback. It may be `Secrets`, which change while nodes run. `repair`: whether a node whose log
    is damaged gets the lost entries from the leader before it takes part. If not, it refuses to
    start.
    `bind_host`: where this node listens, if that is not the host that `peers` tells the others.
    `tls`: the TLS contexts for connections to other members, if these are encrypted.
    """

    group: str
    node_id: str
    peers: Mapping[str, tuple[str, int]]
    directory: Path
    flush: Literal["sync", "async", "interval"] = "sync"
    flush_interval_s: float = limits.FLUSH_INTERVAL_S
    segment_bytes: int = limits.SEGMENT_BYTES
    secret: bytes | Secrets = b""
    timing: Timing = field(default_factory=Timing)
    preferred_leader: str | None = None
    services: Mapping[str, str] = field(default_factory=dict)
    repair: bool = True
    bind_host: str | None = None
    tls: ServerContexts | None = None

    @property
    def peer_port(self) -> tuple[str, int]:
        """(host, port) that this node listens at for the others."""
        host, port = self.peers[self.node_id]
        return self.bind_host or host, port


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """A node at one moment. Role "leader" only while it serves, its own no-op applied.

    `fenced`: why it takes no further part until it is restarted. `repairing`: the damage that the
    leader is to repair; after that it takes part again. `counted`: whether its copy counts for a
    majority, according to the node: it is eligible, and the state before its log is saved.
    `sync_times`: how long syncs of the log took, in seconds, since it was opened.
    `elections`: how many it has begun since then, by reason. `hears_leader`: whether a leader that
    it follows is alive; `leader_id` goes on to name the last one. `durable_index`: the last entry
    that is known to be on its disk. `reclaimed_bytes`: of old segments, removed since then.
    """

    node_id: str
    role: Literal["leader", "follower", "candidate"]
    term: int
    leader_id: str | None
    last_index: int
    commit_index: int
    applied_index: int
    first_position: int
    end_position: int
    fenced: str | None
    first_index: int = 1
    members: tuple[MemberStatus, ...] = ()
    repairing: str | None = None
    counted: bool = True
    sync_times: Buckets | None = None
    elections: Mapping[str, int] = field(default_factory=dict)
    hears_leader: bool = True
    durable_index: int = 0
    reclaimed_bytes: int = 0
