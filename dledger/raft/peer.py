"""A node's knowledge of each of its peers: the link to it, and what is in flight on it.

A new link starts with new parts. Each part belongs to one class, and only that class sets its
fields. Flow control learns of sends and answers by its methods.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from dledger.raft.replication.flow_control import FlowControl

if TYPE_CHECKING:
    from dledger.buffers import Buffer
    from dledger.raft.library.adapter import Node
    from dledger.raft.membership.eligibility import Barrier
    from dledger.raft.messages import Ack, Answer


class Link(Protocol):
    """A connection to one peer, as `Peers` uses it."""

    def send(self, buffers: tuple[Buffer, ...]) -> None:
        """Queue the bytes of `buffers` for the peer, in order; never blocks."""

    @property
    def queued_bytes(self) -> int:
        """How much is queued and not yet taken by the kernel."""

    def close(self, reason: str) -> None:
        """Close the connection; `Peers` learns it by `link_down`."""


class Held(NamedTuple):
    """An acknowledgement that waits until everything up to `needed_index` is durable here."""

    answer: Answer
    needed_index: int


@dataclass(slots=True)
class Sent:
    """Entries that a leader has sent to a peer. Set by `Sending`."""

    sequence: int = 0
    at: float = 0.0
    head_at: float = float("-inf")
    held_back: bool = False
    flow: FlowControl = field(default_factory=FlowControl)


@dataclass(slots=True)
class Answers:
    """Entries acknowledged to a peer, and by it. Set by `Acknowledging`.

    `acknowledged`: term and next index of the last answer to this peer that it may count.
    """

    acknowledged_at: float = 0.0
    held: deque[Held] = field(default_factory=deque)
    acknowledged: tuple[int, int] | None = None
    received_sequence: int = 0
    reset_sequence: int = 0
    early: tuple[Ack, float] | None = None


@dataclass(slots=True)
class Newcomer:
    """How far a peer has come in joining the group. Set by `Joining`."""

    barrier: Barrier | None = None
    state_asked_at: float = float("-inf")


@dataclass(slots=True)
class Peer:
    """A peer, and its live link. Set by `Peers`."""

    node: Node
    link: Link | None = None
    paused: bool = False
    sent: Sent = field(default_factory=Sent)
    answers: Answers = field(default_factory=Answers)
    newcomer: Newcomer = field(default_factory=Newcomer)
