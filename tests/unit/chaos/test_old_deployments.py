"""Deployments of consumers on virtual time: the group gets each message once, and soon.

Each mend of a fault that members had when they left is undone, and found by the rule that the
workloads `deploy*` have for it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from mqchaos.history.events import HistoryWriter
from mqchaos.history.reading import read_history
from mqchaos.limits import NS_PER_S
from mqchaos.run.load import noting, popping, producing, tools, work
from mqchaos.run.load.work import HandlingWork
from mqchaos.run.load.workload import WORKLOADS, Consume
from mqchaos.run.ordinary.look import Lived, look
from mqclient import Consumer
from mqclient.consuming.assignment import Assignment
from mqclient.consuming.popping.taking import Taking
from mqclient.consuming.sharing.locks import Locks
from mqlocal import LocalCluster, local_cluster
from tests.unit.chaos.test_old_faults import produce, send_all

MESSAGES = 300
LIVES = 3
MEMBERS = 2
LATE_S = 70.0
"""A lock, and the time of a message that was popped, last a minute."""


@pytest.fixture
def virtual_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories whose times are the test's own."""
    clock = SimpleNamespace(
        monotonic=trio.current_time,
        monotonic_ns=lambda: int(trio.current_time() * NS_PER_S),
        time=time.time,
    )
    for module in (noting, popping, producing, tools, work):
        monkeypatch.setattr(module, "time", clock)


async def live(task: Consume, life: int, stays_s: float) -> None:
    """Run one process of a member that handles messages, and tell it to stop."""
    name, stop = f"{task.client}-{life}", trio.Event()
    path = Path(task.history).with_name(f"{name}.jsonl")
    with HistoryWriter(path) as history:
        own = replace(task, client=name, history=str(path))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(HandlingWork(own, history).run, stop)
            await trio.sleep(stays_s)
            stop.set()


async def deployed(
    cluster: LocalCluster, folder: Path, name: str, stays_s: float = 5.0
) -> list[str]:
    """Findings about members that are deployed one after the other."""
    workload, readers = WORKLOADS[name], set[str]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_all, produce(cluster, folder, "p0", MESSAGES, 200.0))

        async def member(number: int) -> None:
            client = f"c{number}"
            file = str(folder / f"{client}.offsets") if workload.broadcast else None
            task = Consume(
                *(client, cluster.namesrv_addr, "T", str(folder / f"{client}.jsonl"), "G"),
                ordered=workload.ordered,
                offsets=file,
                members=workload.members,
                handles=True,
            )
            readers.add(task.reader)
            await trio.sleep(0.3 * number)
            for life in range(LIVES):
                await live(task, life, stays_s if life == LIVES - 1 else 1.0)

        for number in range(MEMBERS):
            nursery.start_soon(member, number)
    lived = Lived("G", MEMBERS * (LIVES - 1), 2, 1.0, sorted(readers))
    wrong, (counted,) = look(workload, lambda: read_history(folder), lived)
    assert f"of {MESSAGES * len(readers):,} messages" in counted
    return wrong


Undone = Callable[..., Awaitable[object]]


async def does_not(*_: object, **__: object) -> None:
    """Stand for a method that a leaving client calls, and do nothing."""


run, revoke = Consumer.run, Assignment.revoke


async def runs_until_cut_off(consumer: Consumer, *arguments: object) -> None:
    """A run that ends as soon as its consumer is drained, whatever its handlers do."""
    with trio.CancelScope() as scope:
        consumer.drain = lambda *_: cuts_off(scope)  # type: ignore[method-assign]
        await run(consumer, *arguments)  # type: ignore[arg-type]


async def cuts_off(scope: trio.CancelScope) -> bool:
    """A drain that waits for nobody."""
    scope.cancel()
    return False


async def does_not_wait(assignment: Assignment, *queues: object) -> None:
    """A member that gives queues up while it has messages of them in hand."""
    assignment.revoke_timeout_s = 0.0
    await revoke(assignment, *queues)  # type: ignore[arg-type]


OLD_FAULTS = {
    "leaves without a commit": ("deploy", Assignment, "commit", does_not, "handled twice"),
    "has a file, and writes nothing": (
        *("deploy-broadcast", Assignment, "commit", does_not),
        "handled twice",
    ),
    "hands over what it has in hand": (
        *("deploy", Assignment, "revoke", does_not_wait),
        "handled twice",
    ),
    "keeps its locks": ("deploy-ordered", Locks, "release", does_not, "was read by nobody"),
    "keeps what it popped": ("deploy-pop", Taking, "give_back", does_not, "was read by nobody"),
}


@pytest.mark.parametrize(
    "name", [name for name, each in WORKLOADS.items() if each.deployed and not each.threads]
)
@pytest.mark.usefixtures("virtual_times")
async def test_a_group_that_is_deployed_anew_is_given_all_once(
    autojump_clock: MockClock, tmp_path: Path, name: str
) -> None:
    """A group that is deployed anew gets each message once, and soon."""
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=2, write_queues=2)
        assert await deployed(cluster, tmp_path, name) == []


@pytest.mark.parametrize("what", OLD_FAULTS)
@pytest.mark.usefixtures("virtual_times")
async def test_what_a_member_did_wrong_as_it_left_is_named(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    """Faults of leaving members are found by messages that come again, or late.

    Handlers are slower than the producer, so a member has messages in flight whenever it leaves.
    """
    monkeypatch.setattr(work.limits, "HANDLING_S", (0.1,))
    name, owner, method, undone, told = OLD_FAULTS[what]
    monkeypatch.setattr(owner, method, undone)
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=2, write_queues=2)
        wrong = await deployed(cluster, tmp_path, name, LATE_S)
    assert any(told in each for each in wrong), wrong


@pytest.mark.usefixtures("virtual_times")
async def test_a_handler_that_a_member_cuts_off_ends_the_run(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A member that is told to stop waits for its handlers; one that does not fails."""
    monkeypatch.setattr(Consumer, "run", runs_until_cut_off)
    async with local_cluster(replicas=1) as cluster, cluster.admin() as admin:
        await admin.topics.update("T", read_queues=2, write_queues=2)
        with pytest.RaisesGroup(
            pytest.RaisesExc(RuntimeError, match="handlers were cut off"),
            flatten_subgroups=True,
            allow_unwrapped=True,
        ):
            await deployed(cluster, tmp_path, "deploy")
