"""An owner of links between members, which notes what reaches a node."""

from __future__ import annotations

from dledger.raft.messages import PeerMessage
from dledger.raft.network.links import SocketLink


class Owner:
    """Keeps what reaches a node."""

    def __init__(self) -> None:
        self.links: dict[str, SocketLink] = {}
        self.terms: list[int] = []
        self.ended: list[str] = []

    def link_up(self, node_id: str, link: SocketLink) -> None:
        self.links[node_id] = link

    def link_down(self, node_id: str, link: SocketLink) -> None:
        self.ended.append(str(link.closed_because))
        if self.links.get(node_id) is link:
            del self.links[node_id]

    def link_drained(self, node_id: str) -> None:
        """Do nothing when a link is drained."""

    def receive(self, node_id: str, link: SocketLink, message: PeerMessage) -> None:
        self.terms.append(message.term)

    def received_all(self) -> None:
        """Do nothing at the end of a burst."""
