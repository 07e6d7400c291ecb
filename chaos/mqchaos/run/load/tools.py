"""Changes by tools during a run: as `mqadmin` does them, while clients send and read.

A tool that is refused, or gets no answer, as while nobody leads, tries again later. What was not
answered may have happened all the same: a change counts from its first try to the answer, a reset
to a while after it. What may be given back is given back when the run ends: each tool is told to
stop, and then, if it has not ended by itself, cancelled.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar

import trio

from dledger.errors import BadInput, DledgerError
from mqchaos import limits
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import CLIENTS
from mqchaos.cluster.probe import Probe
from mqchaos.cluster.processes import ClusterError
from mqchaos.faults.generator import Uniform
from mqchaos.history.events import Act, Event, Reset
from mqclient import Admin
from mqclient.admin import UnknownTarget
from mqclient.admin.results import QueueReset

T = TypeVar("T")
CLIENT: Final = "tool"
READ, WRITE = 4, 2
"""RocketMQ's permissions of a topic."""


class Tools(NamedTuple):
    """The objects on which tools work. `note` writes an event down, `uniform` draws; `stop`: the
    run ends."""

    cluster: Cluster
    probe: Probe
    topic: str
    group: str
    queues: int
    note: Callable[[Event], None]
    uniform: Uniform
    stop: trio.Event

    def admin(self) -> Admin:
        """An admin client, from where clients are."""
        return self.cluster.admin(self.cluster.layout.namesrv_addr_for(CLIENTS))

    async def pause(self, bounds: tuple[float, float]) -> None:
        """Wait until a drawn time has passed, or the run ends."""
        with trio.move_on_after(self.uniform(*bounds)):
            await self.stop.wait()

    def moved(self, queues: Sequence[QueueReset], began: int) -> None:
        """Note a reset, at some moment from then to now."""
        for queue in queues:
            place = (queue.topic, queue.broker_name, queue.queue_id, queue.offset)
            self.note(Reset(time.monotonic_ns(), began, CLIENT, self.group, *place))

    def put_topic(self, began: int, perm: int) -> None:
        """Note that the topic was made or changed, on every broker group."""
        self._acted("put-topic", began, topic=self.topic, perm=perm)

    def deleted_topic(self, began: int) -> None:
        """Note that it was deleted."""
        self._acted("delete-topic", began, topic=self.topic)

    def put_group(self, began: int, *, enabled: bool) -> None:
        """Note that the group may consume, or not."""
        self._acted("put-group", began, group=self.group, enabled=enabled)

    def _acted(
        self,
        act: str,
        began: int,
        topic: str | None = None,
        group: str | None = None,
        perm: int | None = None,
        enabled: bool | None = None,
    ) -> None:
        now = time.monotonic_ns()
        for broker in self.cluster.layout.brokers:
            self.note(Act(now, began, CLIENT, act, broker, topic, group, perm, enabled, done=True))


async def answered(ask: Callable[[], Awaitable[T]]) -> tuple[T, int]:
    """Ask until it is done; returns the answer, and when it was asked first.

    Raises ClusterError if that takes too long.
    """
    began, reason = time.monotonic_ns(), "nobody answered"
    with trio.move_on_after(limits.ACT_TIMEOUT_S):
        while True:
            try:
                return await ask(), began
            except (DledgerError, BadInput) as error:
                reason = str(error)
            await trio.sleep(limits.ACT_AGAIN_S)
    raise ClusterError(f"a tool was refused for {limits.ACT_TIMEOUT_S:.0f} s: {reason}")


async def reset(tools: Tools) -> None:
    """Set the group's offsets back by a few seconds, now and then, for ever."""
    async with tools.admin() as admin:
        while True:
            await trio.sleep(limits.MEDDLE_EVERY_S)
            await _set_back(tools, admin)


async def _set_back(tools: Tools, admin: Admin) -> None:
    """Reset the group's offsets once. A reset that is under way when this is cancelled counts,
    too."""
    queues: Sequence[QueueReset] = ()
    began, moved = time.monotonic_ns(), False
    try:
        while not moved:
            back_ms = round((time.time() - limits.RESET_BACK_S) * 1000)
            with suppress(DledgerError, BadInput):
                queues = await admin.groups.reset_offset(
                    tools.group, tools.topic, back_ms, force=False
                )
                moved = True
            await trio.sleep(limits.RESET_SETTLES_S)
    finally:
        tools.moved(queues, began)


async def change(tools: Tools) -> None:
    """Make, change and delete topics, groups and settings, for ever; the run's own topic, too."""
    async with tools.admin() as admin:
        for turn in itertools.count():
            other, hours = f"Tool-{turn % limits.MEDDLED_MAX}", str(72 + turn % 2)
            for each in (
                partial(admin.topics.update, other, read_queues=2, write_queues=2),
                partial(admin.topics.update, tools.topic, read_queues=8, write_queues=8),
                partial(admin.settings.update_broker_config, "fileReservedTime", hours),
                partial(admin.topics.delete, other),
            ):
                with suppress(DledgerError, BadInput):
                    await each()
                await trio.sleep(limits.MEDDLE_EVERY_S / 4)


async def widen(tools: Tools) -> None:
    """Once the group reads, give the topic one queue more, again and again."""
    async with tools.admin() as admin:
        queues = 0
        while not queues:
            await trio.sleep(limits.MEDDLE_EVERY_S / 4)
            with suppress(DledgerError, BadInput):
                rows = (await admin.groups.progress(tools.group, tools.topic)).queues
                queues = len(rows) if any(row.consumer_offset > 0 for row in rows) else 0
        while queues < limits.WIDENED_QUEUES_MAX:
            await trio.sleep(limits.MEDDLE_EVERY_S)
            with suppress(DledgerError, BadInput):
                await admin.topics.update(
                    tools.topic, read_queues=queues + 1, write_queues=queues + 1
                )
                queues += 1
        await trio.sleep_forever()


async def administer(tools: Tools) -> None:
    """All that an operator does to a topic and a group that are in use, in a drawn order, again and
    again; at the end everything is given back."""
    left: list[Callable[[Tools, Admin], Awaitable[None]]] = []
    async with tools.admin() as admin:
        while True:
            await tools.pause(limits.ACT_EVERY_S)
            if tools.stop.is_set():
                return
            left = left or sorted(DOINGS, key=lambda _: tools.uniform(0.0, 1.0))
            await left.pop()(tools, admin)


async def _make_anew(tools: Tools, admin: Admin) -> None:
    """Delete the topic and make it again: it has another life."""

    async def delete() -> None:
        with suppress(UnknownTarget):  # a try before, which was not answered, has done it
            await admin.topics.delete(tools.topic)

    _, began = await answered(delete)
    tools.deleted_topic(began)
    await tools.pause(limits.AWAY_S)
    await _permit(tools, admin, READ | WRITE)


async def _permit(tools: Tools, admin: Admin, perm: int) -> None:
    queues = tools.queues
    update = partial(
        admin.topics.update, tools.topic, read_queues=queues, write_queues=queues, perm=perm
    )
    _, began = await answered(update)
    tools.put_topic(began, perm)


async def _take_permission(perm: int, tools: Tools, admin: Admin) -> None:
    """The topic has this permission alone, for a while."""
    await _permit(tools, admin, perm)
    await tools.pause(limits.ACT_LASTS_S)
    await _permit(tools, admin, READ | WRITE)


async def _disable(tools: Tools, admin: Admin) -> None:
    """The group may not consume, for a while."""
    for enabled in (False, True):
        update = partial(admin.groups.update, tools.group, consume_enable=enabled)
        _, began = await answered(update)
        tools.put_group(began, enabled=enabled)
        if not enabled:
            await tools.pause(limits.ACT_LASTS_S)


DOINGS: Final[Sequence[Callable[[Tools, Admin], Awaitable[None]]]] = (
    _make_anew,
    partial(_take_permission, READ),
    partial(_take_permission, WRITE),
    _disable,
    _set_back,
)


async def leave(tools: Tools) -> None:
    """The last broker group is away for a while, again and again; at the end it is there.

    Its stay begins when it serves: on a busy machine its start may take longer than it is to stay,
    and it would be away all the time.
    """
    cluster = tools.cluster
    broker = cluster.layout.brokers[-1]
    names = [node.name for node in cluster.layout.group(broker)]
    while True:
        await tools.probe.wait_for_leader(broker, limits.START_TIMEOUT_S)
        await tools.pause(limits.GROUP_STAYS_S)
        if tools.stop.is_set():
            return
        await trio.to_thread.run_sync(cluster.kill_together, names)
        await tools.pause(limits.ACT_LASTS_S)
        cluster.start(names)


MEDDLING: Final[Mapping[str, Callable[[Tools], Awaitable[None]]]] = {
    "resets": reset,
    "changes": change,
    "widens": widen,
    "administers": administer,
    "leaves": leave,
}
GIVE_BACK: Final = frozenset({"administers", "leaves"})
"""Tools that end by themselves once they are told to stop."""
