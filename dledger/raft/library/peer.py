"""What a node knows of each of its peers: the link to it, and what is under way on it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from dledger.buffers import Buffer
from dledger.raft.library.adapter import Node
from dledger.raft.library.messages import Ack, Answer
from dledger.raft.membership.seat import Barrier
from dledger.raft.replication.pacing import Pace


class Link(Protocol):
    """A connection to one peer, as the transport uses it."""

    def send(self, buffers: tuple[Buffer, ...]) -> None:
        """Queue bytes; never blocks."""

    @property
    def queued_bytes(self) -> int:
        """How much is queued and not yet taken by the kernel."""

    def close(self, reason: str) -> None:
        """Close the connection; the transport is told by `link_down`."""


class Held(NamedTuple):
    """An acknowledgement that waits until everything up to `needed_index` is durable here."""

    answer: Answer
    needed_index: int


@dataclass(slots=True)
class Peer:
    """What the transport knows of a peer. `told`: term and next index of the last acknowledgement
    that this peer may count."""

    node: Node
    link: Link | None = None
    paused: bool = False
    sent_sequence: int = 0
    reset_sequence: int = 0
    received_sequence: int = 0
    held: deque[Held] = field(default_factory=deque)
    acknowledged_at: float = 0.0
    told: tuple[int, int] | None = None
    early_ack: tuple[Ack, float] | None = None
    head_sent_at: float = float("-inf")
    sent_at: float = 0.0
    held_back: bool = False
    pace: Pace = field(default_factory=Pace)
    barrier: Barrier | None = None
    state_asked_at: float = float("-inf")
