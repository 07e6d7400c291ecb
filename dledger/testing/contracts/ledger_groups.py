"""A group of ledgers on virtual time, to be held to the same contract as the real one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dledger.errors import DledgerError, TransferFailed
from dledger.log.entry import Entry, Kind
from dledger.raft.membership.configuration import Member
from dledger.testing.contracts.ledger import Outcome
from dledger.testing.scripted.group import ScriptedGroup


class OnVirtualTime:
    """Real engines on simulated disks, which hear each other at once."""

    def __init__(self) -> None:
        node_ids = "n0", "n1", "n2"
        self._group = ScriptedGroup(node_ids)
        for node_id in node_ids:
            self._group.start(node_id)

    @property
    def up(self) -> list[str]:
        """The nodes that are up."""
        return sorted(self._group.nodes)

    def serves(self, node_id: str) -> bool:
        """See `LedgerGroup.serves`."""
        return self._group.serves(node_id)

    def voters(self, node_id: str) -> list[str]:
        """See `LedgerGroup.voters`."""
        return list(self._group.nodes[node_id].engine.members.current.voters)

    def entries(self, node_id: str) -> list[Entry]:
        """The entries that a node has applied."""
        node = self._group.nodes[node_id]
        applied = range(node.log.first_index, node.machine.applied_index + 1)
        return [node.log.reader.entry(index) for index in applied]

    def append(self, node_id: str, body: bytes) -> Outcome:
        """See `LedgerGroup.append`."""
        outcome: Outcome = []
        engine = self._group.nodes[node_id].engine
        self._begin(partial(engine.append, body, Kind.MESSAGES, outcome.append), outcome.append)
        return outcome

    def read(self, node_id: str) -> list[int | DledgerError]:
        """See `LedgerGroup.read`."""
        answers: list[int | DledgerError] = []
        engine = self._group.nodes[node_id].engine
        self._begin(partial(engine.read, answers.append), answers.append)
        return answers

    def transfer(self, node_id: str, target: str) -> list[str | DledgerError]:
        """See `LedgerGroup.transfer`."""
        outcome: list[str | DledgerError] = []

        def on_done(why: str | None) -> None:
            outcome.append(target if why is None else TransferFailed(why))

        engine = self._group.nodes[node_id].engine
        self._begin(partial(engine.transfer, target, on_done), outcome.append)
        return outcome

    def add(self, node_id: str, newcomer: str) -> list[object]:
        """See `LedgerGroup.add`."""
        outcome: list[object] = []
        engine = self._group.nodes[node_id].engine
        change = partial(engine.add_member, newcomer, Member("host", 1), outcome.append)
        self._begin(change, outcome.append)
        return outcome

    def remove(self, node_id: str, member: str) -> list[object]:
        """See `LedgerGroup.remove`."""
        outcome: list[object] = []
        engine = self._group.nodes[node_id].engine
        self._begin(partial(engine.remove_member, member, outcome.append), outcome.append)
        return outcome

    def _begin(
        self, operation: Callable[[], object], on_refused: Callable[[DledgerError], None]
    ) -> None:
        try:
            operation()
        except DledgerError as error:
            on_refused(error)

    async def start(self, node_id: str) -> None:
        """See `LedgerGroup.start`."""
        self._group.start(node_id)

    async def stop(self, node_id: str) -> None:
        """See `LedgerGroup.stop`."""
        self._group.kill(node_id)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Run virtual time until something holds."""
        self._group.wait_until(holds)
