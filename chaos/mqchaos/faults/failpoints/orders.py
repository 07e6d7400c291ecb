"""Orders to a broker for its failpoints, and its reports of them.

Both are files in a folder of the node (`dledger.program.arming`). A signal tells the process that
there is something new, but only one that has taken orders since its start: to any other SIGUSR1 is
the end. A node that does not run takes them when it starts, and one that stands still when it goes
on: the signal waits for it.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import trio

from dledger.program.arming import ORDERS, REACHED, Order, Orders, Reached
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.processes import ClusterError
from mqchaos.limits import EFFECT_S, POLL_S, START_TIMEOUT_S, STILL_LOOK_S

_numbers = itertools.count(1)


def next_number() -> int:
    """A number that no other order of this harness has."""
    return next(_numbers)


def not_ordered(cluster: Cluster) -> str | None:
    """Why no broker of a cluster takes orders; None if all do."""
    return None if cluster.layout.failpoints else "the brokers of this cluster take no orders"


async def give(
    cluster: Cluster,
    name: str,
    orders: Iterable[Order] = (),
    *,
    ahead_ms: int | None = None,
    strobe_s: float | None = None,
) -> None:
    """Give one node orders besides those that it has; return when it has taken them, or is down or
    stands still and so takes them first thing when it goes on.

    Raises ClusterError if it does not.
    """
    await _change(
        cluster,
        name,
        lambda held: msgspec.structs.replace(
            held,
            orders=(*held.orders, *orders),
            ahead_ms=held.ahead_ms if ahead_ms is None else ahead_ms,
            strobe_s=held.strobe_s if strobe_s is None else strobe_s,
        ),
    )


async def withdraw(cluster: Cluster, name: str, places: Iterable[str]) -> None:
    """Take the orders for these places back. Raises ClusterError as `give` does."""
    gone = {*places}
    await _change(
        cluster,
        name,
        lambda held: msgspec.structs.replace(
            held, orders=tuple(order for order in held.orders if order.place not in gone)
        ),
    )


async def note_places(cluster: Cluster, name: str) -> None:
    """Make a node write down each place that it comes by."""
    await _change(cluster, name, lambda held: msgspec.structs.replace(held, notes=True))


def ordered(cluster: Cluster, name: str) -> Orders:
    """The orders that a node has been given."""
    try:
        return msgspec.json.decode((cluster.orders(name) / ORDERS).read_bytes(), type=Orders)
    except FileNotFoundError:
        return Orders()


def reached(cluster: Cluster, name: str) -> list[Reached]:
    """All that a node has said, over all its starts."""
    try:
        lines = (cluster.orders(name) / REACHED).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [msgspec.json.decode(line, type=Reached) for line in lines]


def has_done(cluster: Cluster, name: str, places: Iterable[str]) -> bool:
    """Whether a node has carried out an order that it has for one of these places."""
    orders = ordered(cluster, name).orders
    wanted = {order.number for order in orders if order.place in {*places}}
    return any(each.place and each.number in wanted for each in reached(cluster, name))


def taken(cluster: Cluster, name: str) -> bool:
    """Whether a node has taken the orders that it was given last."""
    number = ordered(cluster, name).number
    return any(not each.place and each.number == number for each in reached(cluster, name))


async def _change(cluster: Cluster, name: str, change: Callable[[Orders], Orders]) -> None:
    held = change(ordered(cluster, name))
    wanted = msgspec.structs.replace(held, number=next_number())
    _write(cluster.orders(name) / ORDERS, msgspec.json.encode(wanted))
    moved_at = trio.current_time()
    # A process that is about to start reads them only once it has loaded its modules.
    with trio.move_on_after(START_TIMEOUT_S) as scope:
        while (pid := cluster.pid(name)) is not None:
            taken = [each for each in reached(cluster, name) if each.pid == pid and not each.place]
            if taken and taken[-1].number == wanted.number:
                if taken[-1].problem:
                    raise ClusterError(f"{name} can't take these orders: {taken[-1].problem}")
                return
            if taken:
                os.kill(pid, signal.SIGUSR1)
                scope.deadline = min(scope.deadline, trio.current_time() + EFFECT_S)
            # A process that gets a small share of a processor stands still at most looks, not all.
            if not cluster.stopped(name):
                moved_at = trio.current_time()
            elif trio.current_time() - moved_at >= STILL_LOOK_S:
                return
            await trio.sleep(POLL_S)
        return
    raise ClusterError(
        f"{name} took no orders within {EFFECT_S:.0f} s, or {START_TIMEOUT_S:.0f} s of its start"
    )


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    temporary.replace(path)
