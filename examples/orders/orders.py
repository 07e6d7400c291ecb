"""An order service: it charges for what is ordered, and cancels what is not paid in time.

Its tests, beside it, run it on a whole cluster within their own process:

    pip install PATH-OR-GIT-URL pytest-trio
    pytest examples/orders

An order is a message of the topic Orders, and one of Deadlines that arrives later. A bank that does
not answer is asked again, by and by. What it declines, or could not charge for in four tries, goes
to the dead letters of the group that charges.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal, Protocol

import anyio

from mqclient import Consumer, Message, Nack, Producer, ReceivedMessage

CHARGE_AGAIN_S = (10, 30, 60)
PAY_WITHIN_S = 180

State = Literal["new", "paid", "cancelled"]


class Declined(Exception):
    """The bank will never charge for this order."""


class Bank(Protocol):
    """The service that charges customers' cards."""

    async def charge(self, order: str, cents: int) -> None:
        """Charge for an order, once however often it is called.

        Raises Declined, or ConnectionError.
        """


class Orders:
    """The service, made by `serving`. `states` stands for its database."""

    def __init__(self, producer: Producer, bank: Bank) -> None:
        self.states: dict[str, State] = {}
        self._producer = producer
        self._bank = bank

    async def place(self, order: str, cents: int) -> None:
        """Take an order: when this returns, it is charged for or cancelled, whatever may fail."""
        self.states[order] = "new"
        deadline = Message("Deadlines", order.encode(), keys=order, delay_s=PAY_WITHIN_S)
        await self._producer.send(deadline)
        await self._producer.send(Message("Orders", str(cents).encode(), keys=order), key=order)

    async def charge(self, message: ReceivedMessage) -> None:
        """Charge for an order. What is raised has it tried again."""
        order = message.keys
        if self.states[order] != "new":
            return  # a message may come twice
        try:
            await self._bank.charge(order, int(message.body))
        except Declined:
            raise Nack(delay_level=-1) from None
        self.states[order] = "paid"

    async def expire(self, message: ReceivedMessage) -> None:
        """The time for paying is over."""
        if self.states[message.keys] == "new":
            self.states[message.keys] = "cancelled"


@asynccontextmanager
async def serving(namesrv_addr: str, bank: Bank) -> AsyncIterator[Orders]:
    """The service at work, until the block is left."""
    async with (
        Producer(namesrv_addr, group="orders") as producer,
        Consumer(
            namesrv_addr, "charging", {"Orders": "*"}, retry_delays_s=CHARGE_AGAIN_S
        ) as charging,
        Consumer(namesrv_addr, "expiring", {"Deadlines": "*"}) as expiring,
        anyio.create_task_group() as tasks,
    ):
        orders = Orders(producer, bank)
        times = len(CHARGE_AGAIN_S)
        tasks.start_soon(lambda: charging.run(orders.charge, 16, max_reconsume_times=times))
        tasks.start_soon(lambda: expiring.run(orders.expire))
        yield orders
        tasks.cancel_scope.cancel()
