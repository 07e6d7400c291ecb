"""An operator of a simulated group who adds, removes and replaces members while all else goes on.

New nodes have empty disks, or those that they had when they were removed. They may be added before
they are up. Nodes that were removed stay up for a while, as they do in reality, and must disturb
nobody; then they are gone.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Protocol

from dledger.errors import AppendError, BadInput, MembershipError, TransferFailed
from dledger.raft.appends import Appended
from dledger.raft.membership.configuration import Configuration, Member, initial
from dledger.testing.simulation.judge.invariants import Judge
from dledger.testing.simulation.nemesis.damage import Damages
from dledger.testing.simulation.network import Network
from dledger.testing.simulation.node import SimulatedNode
from dledger.testing.simulation.odds import Odds
from dledger.testing.simulation.streams import Streams

ADDRESS = "host", 1
LINGER_S = 3.0
"""A node that was removed is stopped after this time at most."""


class Regrouped(Protocol):
    """The parts of a simulated group that changes of members touch."""

    streams: Streams
    odds: Odds
    network: Network
    judge: Judge
    damages: Damages
    node_ids: list[str]
    down_until: dict[str, float]

    def note(self, text: str) -> None:
        """Write a line of the transcript."""

    def retire(self, node_id: str) -> None:
        """Stop a node for good, or until its disk is used again."""

    def replace_disk(self, node_id: str) -> None:
        """Give a node an empty disk."""


class Regrouping:
    """Acts of the operator, by odds for one step of a leader that serves."""

    def __init__(self, group: Regrouped, rng: random.Random) -> None:
        self._group = group
        self._rng = rng
        self._size = len(group.node_ids)
        self._names = self._size
        self._coming: set[str] = set()
        self._leaving: dict[str, float] = {}
        self._gone: list[str] = []
        #: The group by each node's config file.
        self.files = dict.fromkeys(group.node_ids, initial(dict.fromkeys(group.node_ids, ADDRESS)))

    def step(self, leader: SimulatedNode, *, calm: bool) -> None:
        """See who came and went, and perhaps change something."""
        odds = self._group.odds.member_change
        if not odds:
            return
        self._take_back(leader.engine.members.current)
        self._let_go(leader.engine.members.base, leader.engine.members.current, calm=calm)
        if not calm and self._rng.random() < odds:
            self._change(leader)

    def _take_back(self, current: Configuration) -> None:
        """An addition that was given up has come true after all."""
        for node_id in sorted({*current.members} & {*self._gone}):
            self._gone.remove(node_id)
            self._group.node_ids.append(node_id)
            self._group.down_until[node_id] = self._group.network.now

    def _let_go(self, base: Configuration, current: Configuration, *, calm: bool) -> None:
        """Stop who was removed, a while after that was committed."""
        judge, now = self._group.judge, self._group.network.now
        if base.index < judge.configurations.last_committed(judge.committed):
            return  # a leader of the past
        self._coming -= {*base.members}
        here = {*self._group.node_ids} - self._coming
        removed = here - {*base.members} - {*current.members}
        self._leaving = {node_id: at for node_id, at in self._leaving.items() if node_id in removed}
        for node_id in sorted(removed):
            at = self._leaving.setdefault(node_id, now + self._rng.uniform(0, LINGER_S))
            if now < at and not calm:
                continue
            self._group.retire(node_id)
            self._gone.append(node_id)
            self._group.note(f"{node_id} was removed, and is gone")

    # -- changes ---------------------------------------------------------------------------

    def _change(self, leader: SimulatedNode) -> None:
        current = leader.engine.members.current
        members = current.members
        growing = len(members) <= self._rng.randint(self._size - 1, self._size + 1)
        if self._group.streams["shrink"].random() < self._group.odds.shrink:
            growing = False
        try:
            if growing and len(self._group.node_ids) < self._size + 3:
                self._add(leader, current)
            else:
                self._remove(leader, current, self._rng.choice(sorted(members)))
        except (MembershipError, AppendError, TransferFailed, BadInput) as refused:
            self._group.note(f"{leader.node_id} changes no member: {refused}")

    def _add(self, leader: SimulatedNode, current: Configuration) -> None:
        group, rng, members = self._group, self._rng, current.members
        again = bool(self._gone) and rng.random() < 0.4
        node_id = rng.choice(self._gone) if again else f"n{self._names}"
        member = Member(*ADDRESS)
        if not group.damages.may_belong({*members, node_id}, current.voters):
            return

        def on_done(outcome: Appended | AppendError) -> None:
            group.note(f"{node_id} was added: {outcome}")
            if isinstance(outcome, AppendError):
                self._coming.discard(node_id)

        leader.change_members(partial(leader.engine.add_member, node_id, member, on_done))
        group.note(f"{leader.node_id} adds {node_id}")
        if again:
            self._gone.remove(node_id)
        else:
            self._names += 1
        if not again or rng.random() < 0.5:
            group.replace_disk(node_id)
        self.files[node_id] = {**members, node_id: member}
        self._coming.add(node_id)
        group.node_ids.append(node_id)
        group.down_until[node_id] = group.network.now + rng.choice((0.0, 0.5))

    def _remove(self, leader: SimulatedNode, current: Configuration, node_id: str) -> None:
        if node_id == leader.node_id:
            leader.engine.transfer(None, lambda failed: None)
            return
        left = {*current.members} - {node_id}
        if not self._group.damages.may_belong(left, left & {*current.voters}):
            return  # a group whose last whole copy goes can't be healed by anybody

        def on_done(outcome: Appended | AppendError) -> None:
            self._group.note(f"{node_id} was removed: {outcome}")

        leader.change_members(partial(leader.engine.remove_member, node_id, on_done))
        self._group.note(f"{leader.node_id} removes {node_id}")
