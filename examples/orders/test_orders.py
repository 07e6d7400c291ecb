"""Promises of the order service, shown on a real cluster: hours of it take a moment.

`mq_cluster` comes with dledger, `autojump_clock` with pytest-trio: on that clock time passes only
when everybody waits, and then at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import trio
from orders import CHARGE_AGAIN_S, PAY_WITHIN_S, Declined, Orders, serving
from trio.testing import MockClock

from mqlocal import LocalCluster

one_replica = pytest.mark.mq_cluster(replicas=1)
"""Enough where no broker fails."""


class TestBank:
    """A bank that is away until `open_at`, and declines some orders."""

    __test__ = False

    def __init__(self, open_at: float = 0.0, declines: tuple[str, ...] = ()) -> None:
        self.charged = Counter[str]()
        self.asked_at: list[float] = []
        self._open_at = open_at
        self._declines = declines

    async def charge(self, order: str, cents: int) -> None:
        """Charge an order, or fail as banks do."""
        self.asked_at.append(trio.current_time())
        if trio.current_time() < self._open_at:
            raise ConnectionError("the bank does not answer")
        if order in self._declines:
            raise Declined(order)
        self.charged[order] += cents


async def until(condition: Callable[[], bool]) -> None:
    """Wait, for a day at most."""
    for _ in range(86_400):
        if condition():
            return
        await trio.sleep(1)
    raise AssertionError("that has not happened within a day")


@one_replica
async def test_a_bank_that_is_away_is_asked_again(
    mq_cluster: LocalCluster, autojump_clock: MockClock
) -> None:
    """A bank that is away is asked again after 10 s and half a minute; then the order is paid."""
    bank = TestBank(open_at=trio.current_time() + 35)
    async with serving(mq_cluster.namesrv_addr, bank) as orders:
        await orders.place("1", 250)
        await until(lambda: orders.states["1"] == "paid")

    first, second, third = bank.asked_at
    assert second - first == pytest.approx(CHARGE_AGAIN_S[0], abs=1)
    assert third - second == pytest.approx(CHARGE_AGAIN_S[1], abs=1)
    assert bank.charged == {"1": 250}


@one_replica
async def test_what_the_bank_declines_is_kept_aside(
    mq_cluster: LocalCluster, autojump_clock: MockClock
) -> None:
    """A declined order is not charged again, and the other orders are paid."""
    bank = TestBank(declines=("2",))
    async with serving(mq_cluster.namesrv_addr, bank) as orders:
        for number in ("1", "2", "3"):
            await orders.place(number, 100)
        await until(lambda: [*orders.states.values()].count("paid") == 2)
        async with mq_cluster.admin() as admin:
            (dead,) = await admin.dead_letters.list("charging")

    assert (dead.origin_topic, dead.keys) == ("Orders", "2")
    assert len(bank.asked_at) == 3


@one_replica
async def test_an_order_that_nobody_could_charge_for_is_cancelled(
    mq_cluster: LocalCluster, autojump_clock: MockClock
) -> None:
    """Three minutes after it was placed, and four tries."""
    bank = TestBank(open_at=float("inf"))
    async with serving(mq_cluster.namesrv_addr, bank) as orders:
        placed_at = trio.current_time()
        await orders.place("1", 100)
        await until(lambda: orders.states["1"] == "cancelled")
        assert trio.current_time() - placed_at == pytest.approx(PAY_WITHIN_S, abs=2)

    assert len(bank.asked_at) == 1 + len(CHARGE_AGAIN_S)


async def test_no_order_is_lost_when_a_broker_dies(
    mq_cluster: LocalCluster, autojump_clock: MockClock
) -> None:
    """The leader is killed while orders are placed, and none is charged for twice."""
    bank = TestBank()
    async with serving(mq_cluster.namesrv_addr, bank) as orders:
        async with trio.open_nursery() as customers:
            customers.start_soon(place_many, orders, 20)
            await trio.sleep(0.1)
            killed = await mq_cluster.kill("leader")
        await mq_cluster.restart(killed)
        await until(lambda: "new" not in orders.states.values())

    assert bank.charged == {str(number): 100 for number in range(20)}


async def place_many(orders: Orders, count: int) -> None:
    """Place orders one after the other."""
    for number in range(count):
        await orders.place(str(number), 100)
        await trio.sleep(0.01)
