"""Provokes nodes to come by places of our code: one way for each kind of work.

Each gives the node its order, at the moment that suits, and does the work until it is cancelled:
then the node was there. What sends messages for that sends them to a topic of its own, which no
audit looks at. What can't be done in a cluster as it is, is said before.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

import trio

from dledger.errors import BadInput, DledgerError
from dledger.failpoints import By, Place, When
from mqchaos import limits
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import NodeLayout
from mqchaos.cluster.probe import Probe, transfer_leader
from mqchaos.faults.failpoints.orders import has_done
from mqchaos.faults.network import break_links
from mqchaos.network import rules
from mqchaos.network.control import Request
from mqchaos.network.rules import CUT
from mqclient import Admin, Decision, Message, Producer
from mqclient.connection.peers import PeerPool

TOPIC: Final = "Provoked"
GUEST: Final = "n99"
"""A member that never runs, added and removed."""

GiveOrder: TypeAlias = Callable[[], Awaitable[None]]
Provocation: TypeAlias = Callable[[Cluster, NodeLayout, Place, GiveOrder], Awaitable[None]]


def lacking(cluster: Cluster, place: Place) -> str | None:
    """The means that a cluster lacks for a place; None if a node can be made to come by."""
    if place.when is When.CUT and not cluster.layout.breakable:
        return "the links of this cluster pass no proxy"
    if place.when in (When.RETENTION, When.COPY) and not cluster.layout.retain_bytes:
        return "this cluster keeps all of its logs"
    return None


async def clean_up(cluster: Cluster, node: NodeLayout, place: Place) -> None:
    """Undo what a provocation did to others, however far it came."""
    others = [other.name for other in cluster.layout.group(node.broker) if other != node]
    if place.when is When.ELECTION:
        for name in others:
            cluster.signal(name, signal.SIGCONT)
    if place.when is When.COPY:
        cluster.start(others)
    if place.when is When.CUT:
        await break_links(cluster, Request(_CUT_NAME, healed=True))
    if place.when in (When.MEMBERS, When.COPY):
        with suppress(DledgerError, BadInput):
            async with cluster.admin() as admin:
                await admin.members.remove(node.broker, GUEST, within_s=limits.EFFECT_S)


_CUT_NAME: Final = "provoked cut"


async def _load(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """The run's own sends come by."""
    await order()
    await trio.sleep_forever()


async def _roll(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Give the order, then fill segments until cancelled."""
    await order()
    await filling(cluster)


async def filling(cluster: Cluster) -> None:
    """Send so much that segments become full, until cancelled."""
    async with _producer(cluster) as producer:
        while True:
            with suppress(DledgerError):
                for _ in range(max(1, cluster.layout.segment_bytes // limits.PROVOKED_BYTES)):
                    await producer.send_soon(Message(TOPIC, bytes(limits.PROVOKED_BYTES)))
                await producer.flush()


def _producer(cluster: Cluster) -> Producer:
    """Sends what provokes; it commits every transaction that a broker asks about."""
    return Producer(
        cluster.layout.namesrv_addr,
        "Provoking",
        timeout_s=limits.PROVOKED_S,
        checker=lambda message: Decision.COMMIT,
        **cluster.access,
    )


async def _save(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Tell the node to end: it saves its state first, unless it did so a moment ago."""
    await order()
    while True:
        cluster.signal(node.name, signal.SIGTERM)
        while cluster.pid(node.name) is not None:  # noqa: ASYNC110 - a process's
            await trio.sleep(limits.POLL_S)
        if not has_done(cluster, node.name, [place.name]):
            cluster.start([node.name])
        await trio.sleep(limits.ELECTED_S)


async def _start(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Kill it and start it."""
    await trio.to_thread.run_sync(cluster.kill, node.name)
    await order()
    cluster.start([node.name])
    await trio.sleep_forever()


async def _election(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Hold each other leader until another node leads, again and again."""
    await order()
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)
        while True:
            leader = await probe.leader(node.broker)
            if leader is not None and leader.node != node:
                cluster.signal(leader.node.name, signal.SIGSTOP)
                await trio.sleep(limits.ELECTED_S)
                cluster.signal(leader.node.name, signal.SIGCONT)
            elif leader is not None:
                await _transfer_to(None, pool, leader.node)
            await trio.sleep(limits.ELECTED_S / 4)


async def _transfer(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Transfer leadership from the node, or to it."""
    await order()
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)
        while True:
            leader = await probe.leader(node.broker)
            if leader is not None:
                goes_there = place.by is By.FOLLOWER and leader.node != node
                await _transfer_to(node.node if goes_there else None, pool, leader.node)
            await trio.sleep(limits.ELECTED_S / 4)


async def _transfer_to(target: str | None, pool: PeerPool, leader: NodeLayout) -> None:
    with suppress(DledgerError, BadInput):  # it may end on the way
        await transfer_leader(pool, leader.address, target)


async def _members(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Add a member that does not run, and remove it."""
    await order()
    async with cluster.admin() as admin:
        while True:
            await _come_and_go(admin, cluster, node)


async def _come_and_go(admin: Admin, cluster: Cluster, node: NodeLayout) -> None:
    nowhere = "127.0.0.1:1"
    with suppress(DledgerError, BadInput):
        await admin.members.add(node.broker, GUEST, nowhere, nowhere, within_s=limits.ELECTED_S / 2)
    with suppress(DledgerError, BadInput):
        await admin.members.remove(node.broker, GUEST, within_s=limits.ELECTED_S)


async def _empty(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Wipe the node's disk: it has to be let in anew."""
    await _wiped(cluster, node, order)


async def _wiped(cluster: Cluster, node: NodeLayout, order: GiveOrder) -> None:
    await trio.to_thread.run_sync(cluster.kill, node.name)
    await trio.to_thread.run_sync(shutil.rmtree, cluster.store(node))
    await order()
    cluster.start([node.name])
    await trio.sleep_forever()


async def _cut(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Cut off the node while it leads: no other node has what it takes then."""
    async with cluster.pool() as pool:
        probe = Probe(cluster, pool)
        while True:
            leader = await probe.wait_for_leader(node.broker)
            if leader.node != node:
                await _transfer_to(node.node, pool, leader.node)
                await trio.sleep(limits.ELECTED_S / 4)
                continue
            await order()
            cut = sorted(rules.from_peers(cluster.layout, {node.name}))
            await break_links(cluster, Request(_CUT_NAME, cut, CUT))
            await trio.sleep(2 * limits.ELECTED_S)
            await break_links(cluster, Request(_CUT_NAME, healed=True))
            await trio.sleep(limits.ELECTED_S)


async def _repair(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Turn a bit of its log."""
    # Much to import, for commands that only name this fault.
    from mqchaos.faults.rotting import turn_a_bit  # noqa: PLC0415

    await trio.to_thread.run_sync(cluster.kill, node.name)
    await trio.to_thread.run_sync(turn_a_bit, cluster.store(node))
    await order()
    cluster.start([node.name])
    await trio.sleep_forever()


async def _copy(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Wipe the node, or one that the node leads: what it lacks is gone from the logs.

    Before that, members have come and gone: the node knows those of its config.
    """
    async with cluster.admin() as admin:
        await _come_and_go(admin, cluster, node)
    if place.by is By.FOLLOWER:
        await _wiped(cluster, node, order)
    followers = [other for other in cluster.layout.group(node.broker) if other != node]
    await order()
    await _wiped(cluster, followers[0], trio.lowlevel.checkpoint)


async def _delay(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Send messages that wait a moment."""
    await order()
    async with _producer(cluster) as producer:
        while True:
            with suppress(DledgerError):
                await producer.send(Message(TOPIC, b"later", delay_s=0.1))
            await trio.sleep(limits.ELECTED_S / 4)


async def _transaction(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Give the order, then commit transactions until cancelled."""
    await order()
    async with _producer(cluster) as producer:
        while True:
            with suppress(DledgerError):
                async with producer.transaction(Message(TOPIC, b"perhaps")) as transaction:
                    await transaction.commit()
            await trio.sleep(limits.ELECTED_S / 4)


async def _topic(cluster: Cluster, node: NodeLayout, place: Place, order: GiveOrder) -> None:
    """Give the order, then change topics until cancelled."""
    await order()
    async with cluster.admin() as admin:
        while True:
            for number in range(8):
                with suppress(DledgerError, BadInput), trio.move_on_after(limits.START_TIMEOUT_S):
                    await admin.topics.update(f"{TOPIC}-{number}", read_queues=1, write_queues=1)
            await trio.sleep(limits.ELECTED_S / 4)


PROVOCATIONS: Final[dict[When, Provocation]] = {
    When.LOAD: _load,
    When.ROLL: _roll,
    When.SAVE: _save,
    When.START: _start,
    When.ELECTION: _election,
    When.TRANSFER: _transfer,
    When.MEMBERS: _members,
    When.EMPTY: _empty,
    When.CUT: _cut,
    When.REPAIR: _repair,
    When.RETENTION: _roll,
    When.COPY: _copy,
    When.DELAY: _delay,
    When.TRANSACTION: _transaction,
    When.TOPIC: _topic,
}
