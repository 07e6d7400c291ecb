"""Contract of all ledgers: on virtual time, over real sockets, and in memory.

Engines that are broken on purpose do not keep it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from dledger import AppendError, DledgerError, Entry, Ledger, LedgerConfig, open_ledger
from dledger.log.entry import Kind
from dledger.raft.roles import Timing
from dledger.testing.contracts.ledger import GroupContract, LedgerContract, Outcome
from dledger.testing.contracts.ledger_groups import OnVirtualTime
from dledger.testing.local import LocalLedger
from dledger.testing.planted.catalogue import plant
from dledger.testing.scripted.node import Recorder
from mqchaos.cluster.processes import free_ports

PATIENCE_S = 20.0
LOOK_AGAIN_S = 0.005


class Ledgers:
    """Ledgers in this process, by node."""

    def __init__(self, nursery: trio.Nursery, **ledgers: Ledger | LocalLedger) -> None:
        self.nursery = nursery
        self.ledgers = ledgers

    @property
    def up(self) -> list[str]:
        return sorted(self.ledgers)

    def serves(self, node_id: str) -> bool:
        return node_id in self.ledgers and self.ledgers[node_id].status.role == "leader"

    def voters(self, node_id: str) -> list[str]:
        members = self.ledgers[node_id].status.members
        return sorted(member.node_id for member in members if member.role == "voter")

    def entries(self, node_id: str) -> list[Entry]:
        return list(self.ledgers[node_id].entries(1))

    def append(self, node_id: str, body: bytes) -> Outcome:
        outcome: Outcome = []
        try:
            self.ledgers[node_id].append_nowait(body, Kind.MESSAGES, outcome.append)
        except AppendError as error:
            outcome.append(error)
        return outcome

    def read(self, node_id: str) -> list[object]:
        return self._begin(self.ledgers[node_id].read_index)

    def transfer(self, node_id: str, target: str) -> list[object]:
        return self._begin(partial(self.ledgers[node_id].transfer_leadership, target))

    def remove(self, node_id: str, member: str) -> list[object]:
        return self._begin(partial(self.ledgers[node_id].remove_member, member))

    def _begin(self, operation: Callable[[], Awaitable[object]]) -> list[object]:
        outcome: list[object] = []

        async def run() -> None:
            try:
                outcome.append(await operation() or "done")
            except DledgerError as error:
                outcome.append(error)

        self.nursery.start_soon(run)
        return outcome

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 (others change it, without an event)
                await trio.sleep(LOOK_AGAIN_S)


class OverSockets(Ledgers):
    """Real ones, over loopback, on real files, in real time."""

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        super().__init__(nursery)
        self._folder = folder
        ports = free_ports(4)
        self._addresses = {f"n{at}": ("127.0.0.1", port) for at, port in enumerate(ports)}
        self._scopes: dict[str, trio.CancelScope] = {}

    def add(self, node_id: str, newcomer: str) -> list[object]:
        host, port = self._addresses[newcomer]
        return self._begin(partial(self.ledgers[node_id].add_member, newcomer, host, port))

    async def start(self, node_id: str) -> None:
        await self.nursery.start(self._run, node_id)

    async def _run(self, node_id: str, task_status: trio.TaskStatus[None]) -> None:
        known = {n: at for n, at in self._addresses.items() if n in {"n0", "n1", "n2", node_id}}
        # Dead leaders are missed at once. These are for one that gets no processor: none here.
        timing = Timing(election_timeout_min_s=2.0, election_timeout_max_s=2.5)
        config = LedgerConfig(
            "g", node_id, known, self._folder / node_id, segment_bytes=1 << 20, timing=timing
        )
        with trio.CancelScope() as scope:
            async with open_ledger(config, Recorder()) as ledger:
                self.ledgers[node_id], self._scopes[node_id] = ledger, scope
                task_status.started()
                await trio.sleep_forever()
        del self._scopes[node_id]

    async def stop(self, node_id: str) -> None:
        del self.ledgers[node_id]
        self._scopes[node_id].cancel()
        await self.until(lambda: node_id not in self._scopes)


class TestInMemory(LedgerContract):
    """A ledger of one node that is its own majority."""

    @pytest.fixture
    def group(self, nursery: trio.Nursery) -> Ledgers:
        return Ledgers(nursery, local=LocalLedger(Recorder()))


class TestVirtualTime(GroupContract):
    """A scripted group on virtual time."""

    @pytest.fixture
    def group(self) -> OnVirtualTime:
        return OnVirtualTime()


@pytest.mark.slow
class TestSockets(GroupContract):
    """Ledgers of `open_ledger`, as programs have them."""

    @pytest.fixture
    async def group(self, tmp_path: Path) -> AsyncIterator[OverSockets]:
        async with trio.open_nursery() as nursery:
            group = OverSockets(tmp_path, nursery)
            for node_id in ("n0", "n1", "n2"):
                await group.start(node_id)
            yield group
            nursery.cancel_scope.cancel()


def is_kept(promise: str) -> bool:
    """Whether a test of the contract succeeds on virtual time."""
    try:
        trio.run(getattr(GroupContract(), f"test_{promise}"), OnVirtualTime())
    except (AssertionError, DledgerError):
        return False
    return True


@pytest.mark.parametrize(
    ("bug", "promise"),
    [
        ("append what was refused", "only_the_leader_takes_appends_and_reads"),
        ("answer before the commit", "without_a_majority_nothing_is_acknowledged_or_read"),
        ("count less than a majority", "without_a_majority_nothing_is_acknowledged_or_read"),
        ("answer a read without asking", "without_a_majority_nothing_is_acknowledged_or_read"),
        ("never tell of lost leadership", "without_a_majority_nothing_is_acknowledged_or_read"),
        ("keep conflicting entries", "without_a_majority_nothing_is_acknowledged_or_read"),
        ("hand over for ever", "a_transfer_to_a_node_that_is_gone_fails_and_appends_go_on"),
        ("forget the members", "members_come_and_go"),
    ],
)
def test_a_broken_engine_fails(bug: str, promise: str) -> None:
    """A fix that is taken out breaks its promise."""
    assert is_kept(promise)
    with plant(bug):
        assert not is_kept(promise)
