"""The requests of clients and operators to each node of a simulated group that takes itself for the
leader."""

from __future__ import annotations

import contextlib
from typing import Protocol

from dledger.errors import AppendError, NotLeader, TransferFailed
from dledger.raft.appends import Appended
from dledger.raft.roles import Role
from dledger.testing.simulation.judge.invariants import Judge
from dledger.testing.simulation.node import SimulatedNode
from dledger.testing.simulation.odds import Odds
from dledger.testing.simulation.streams import Streams

ASK_ANYBODY = 0.02


class Served(Protocol):
    """The group that is asked."""

    streams: Streams
    odds: Odds
    judge: Judge

    def note(self, text: str) -> None:
        """Write a line of the transcript."""


class Clients:
    """Appends, reads and transfers of leadership, by the odds's odds."""

    def __init__(self, group: Served) -> None:
        self.transfers = 0
        self._group = group
        self._sent = 0

    def ask(self, node: SimulatedNode) -> None:
        """Perhaps ask a node for something, before it steps. Raises Crashed if it dies of it."""
        odds, streams = self._group.odds, self._group.streams
        # Now and then a client asks a node that does not lead, and is refused.
        asked = node.engine.standing.serving or streams["ask"].random() < ASK_ANYBODY
        if asked and streams["append"].random() < odds.append:
            self._append_some(node)
        may_read = asked or node.engine.core.role is Role.LEADER
        if may_read and streams["read"].random() < odds.read:
            self._read(node)

    def _append_some(self, node: SimulatedNode) -> None:
        odds, judge = self._group.odds, self._group.judge
        if self._sent >= odds.appends_max:
            return
        rng = self._group.streams["append"]
        for _ in range(rng.randint(1, odds.burst_max)):
            self._sent += 1
            body = b"%d:" % self._sent + b"x" * rng.choice(odds.body_bytes)

            def on_done(outcome: Appended | AppendError, body: bytes = body) -> None:
                judge.client.answered(body, outcome, judge.committed_end)

            try:
                node.append(body, on_done)
            except AppendError as error:
                if error.definite:
                    judge.client.refused(body)
                return
            judge.client.offered(node.node_id, body)

    def _read(self, node: SimulatedNode) -> None:
        """A client asks for the log's end, as this node takes it to be."""
        client = self._group.judge.client
        number = client.read_asked(node.node_id)

        def on_read(outcome: int | NotLeader) -> None:
            client.read_answered(number, outcome, node.engine.machine.applied_index)

        try:
            node.engine.read(on_read)
        except AppendError as error:
            client.read_answered(number, error, 0)

    def wish_for_another(self, node: SimulatedNode) -> None:
        """An operator hands leadership to a certain node, or to any."""
        group, rng = self._group, self._group.streams["transfer"]
        if rng.random() >= group.odds.transfer:
            return
        target = rng.choice((None, *node.peer_ids))

        def on_done(failed: str | None) -> None:
            said = f"still leads: {failed}" if failed else "leads no longer"
            group.note(f"{node.node_id} {said}")
            self.transfers += failed is None

        with contextlib.suppress(TransferFailed):
            chosen = node.engine.transfer(target, on_done)
            group.note(f"{node.node_id} hands leadership to {chosen}")
