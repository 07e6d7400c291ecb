"""The rest of Raft, as far as the library's journal and transport need it. Only protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dledger.buffers import Buffer
    from dledger.raft.messages import PeerMessage
    from dledger.raft.peer import Peer


class Configuration(Protocol):
    """The members that are in force."""

    def votes(self, node_id: str) -> bool:
        """Whether a node is a voter."""


class Members(Protocol):
    """The configurations, which follow the log's entries."""

    @property
    def current(self) -> Configuration:
        """The one that is in force."""

    def append(self, index: int, term: int, body: Buffer) -> None:
        """Note that a configuration is about to be appended."""

    def cut(self, index: int) -> None:
        """The log was cut back: it ends before an entry."""

    def begin_anew(self) -> None:
        """The log is about to be replaced."""


class Peers(Protocol):
    """The links to the other nodes."""

    @property
    def known(self) -> Mapping[str, Peer]:
        """The peers by their ids."""

    def post(self, peer: Peer, message: PeerMessage) -> None:
        """Send a message at once."""


class Acknowledgements(Protocol):
    """The entries that this node acknowledges."""

    def hold(self, peer: Peer, term: int, message: dict[str, Any]) -> None:
        """The library acknowledges entries, which may not be durable yet."""

    def received(self, peer: Peer, sequence: int) -> None:
        """A message of a leader has arrived; what is acknowledged now answers it."""
