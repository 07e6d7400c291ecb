"""The links to the peers: which one of each is live, and what is sent over it.

A peer has one link: messages from an older one are dropped (20), and a peer that reads too slowly
is paused (19). When the link breaks, all that was known of the peer is forgotten: it may come back
with an empty folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger import limits
from dledger.raft.library.adapter import Core, Node
from dledger.raft.membership.configuration import encode_members
from dledger.raft.messages import Introduction, PeerMessage
from dledger.raft.peer import Answers, Link, Peer
from dledger.raft.ready import Outgoing

if TYPE_CHECKING:
    from dledger.raft.library.transport import PeerTransport
    from dledger.raft.membership.members import Members


class Peers:
    """The other members, and strangers while they are connected."""

    def __init__(
        self, node_id: str, core: Core, transport: PeerTransport, members: Members
    ) -> None:
        self.node_id = node_id
        self.known: dict[str, Peer] = {}
        self._core = core
        self._transport = transport
        self._members = members
        self._must_send = False
        self._outgoing: list[Outgoing] = []
        #: Whether this node is the only voter.
        self.solo = False
        members.on_change = self.take_members
        self.take_members()

    # -- what to send ----------------------------------------------------------------------

    def ask_to_send(self) -> None:
        """Make the leader check at once what its peers lack."""
        self._must_send = True

    def take_request(self) -> bool:
        """Whether that was asked for since the last call."""
        asked, self._must_send = self._must_send, False
        return asked

    def post(
        self, peer: Peer, message: PeerMessage, entries: tuple[int, int] | None = None
    ) -> None:
        """A message is to be sent after this step, with these entries, if there are any. Nothing
        else that it says may still have to become durable."""
        if peer.link is not None:
            self._outgoing.append(Outgoing(peer.link, message, entries))

    def posted_to(self, peer: Peer) -> list[PeerMessage]:
        """The messages for a peer that wait for the shell."""
        return [each.message for each in self._outgoing if each.link is peer.link]

    def drop_entries(self) -> None:
        """Entries that were posted are not sent: this node leads no longer, and its log may be cut
        before they are read."""
        self._outgoing = [each for each in self._outgoing if each.entries is None]

    @property
    def has_posted(self) -> bool:
        """Whether messages wait for the shell."""
        return bool(self._outgoing)

    def take_posted(self) -> list[Outgoing]:
        """The messages that were posted since the last call."""
        posted, self._outgoing = self._outgoing, []
        return posted

    def broadcast(self, message: PeerMessage) -> None:
        """Post a message to every peer."""
        for peer in self.known.values():
            self.post(peer, message)

    # -- members and strangers -------------------------------------------------------------

    def take_members(self) -> None:
        """Another configuration is in force: count its voters, and send to its members."""
        configuration = self._members.current
        others = {*configuration.members} - {self.node_id}
        for node_id in sorted(others - {*self.known}):
            self.known[node_id] = Peer(Node(node_id))
        for node_id in {*self.known} - others:
            if self.known[node_id].link is None:
                del self.known[node_id]
        # The peers' own nodes: the library looks them up in its tables at each message, and finds
        # the very same object without a comparison.
        voters, learners = (
            [self.known[node_id].node for node_id in sorted(others & {*group})]
            for group in (configuration.voters, configuration.learners)
        )
        self._core.set_members(voters, learners)
        self.solo = configuration.voters == (self.node_id,)
        self.ask_to_send()

    def tell_members(self, peer: Peer) -> None:
        """Tell a peer of the last configuration that is committed, if there ever was a change."""
        self._members.committed(self._core.commit_index)
        base = self._members.base
        if base.index:
            run = memoryview(encode_members(base.members))
            self.post(peer, Introduction(self._core.term, base.index, base.term, run))

    # -- links -----------------------------------------------------------------------------

    def link_up(self, node_id: str, link: Link) -> None:
        """A connection to a peer stands. An older one is closed."""
        peer = self.known.get(node_id) or Peer(Node(node_id))
        old, peer.link = peer.link, None
        if old is not None:
            old.close("replaced by a newer connection")
            self._transport.disconnected(peer.node)
            self._core.forget_match(peer.node)
        self.known[node_id] = Peer(peer.node, link, answers=Answers(self._core.now))
        self._transport.connected(peer.node)
        self.ask_to_send()

    def link_down(self, node_id: str, link: Link) -> bool:
        """A connection broke; returns whether it was the live one of that peer."""
        peer = self.known.get(node_id)
        if peer is None or peer.link is not link:
            return False
        if node_id in self._members.current.members:
            self.known[node_id] = Peer(peer.node)
        else:
            del self.known[node_id]
        self._transport.disconnected(peer.node)
        # The peer may come back with an empty folder: it counts when it acknowledges again.
        self._core.forget_match(peer.node)
        return True

    def link_drained(self, node_id: str) -> None:
        """A paused peer's queue has run low again."""
        peer = self.known.get(node_id)
        if peer is not None and peer.paused and peer.link is not None:
            peer.paused = False
            self._transport.connected(peer.node)
            self.ask_to_send()

    def pause_if_slow(self, peer: Peer) -> None:
        """Send nothing more to a peer that reads too slowly, until its queue has run low."""
        queued_bytes = 0 if peer.link is None else peer.link.queued_bytes
        if queued_bytes > limits.PEER_SEND_BUFFER_BYTES_MAX and not peer.paused:
            peer.paused = True
            self._transport.disconnected(peer.node)

    def close_links(self, reason: str) -> None:
        """Close all connections, as after cutting bytes that may still be queued."""
        self._outgoing.clear()
        for peer in list(self.known.values()):
            if peer.link is not None:
                peer.link.close(reason)
