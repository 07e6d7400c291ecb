"""Orders become bills: each order one bill, although the program fails in the middle of its work.

    mqcluster up --dir /tmp/mq
    python examples/exactly_once.py [NAMESRV]

NAMESRV is the name server's address, by default 127.0.0.1:9876. The program dies twice: once before
its bills are stored, once after that, before it could note down how far it had come. And at last
its first life, which was only taken for dead, wants to go on.
"""

from __future__ import annotations

import sys

import anyio

from mqclient import Admin, Consumer, Message, Producer, ProducerFenced

ORDERS = 12


async def main() -> None:
    """Three lives of a program, and what is there afterwards."""
    namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    async with Admin(namesrv) as admin:
        for topic in ("PaidOrders", "OrderBills"):
            await admin.topics.update(topic, read_queues=1, write_queues=1)
    async with Producer(namesrv, group="shop") as shop:
        for number in range(ORDERS):
            await shop.send(Message("PaidOrders", b"order %d" % number))

    async with Producer(namesrv, group="billing", name="billing-1") as first_life:
        for life, end in enumerate(("before", "after", ""), 1):
            try:
                await live(namesrv, life, end, first_life if life == 1 else None)
            except ConnectionError as error:
                print(f"life {life} ended: {error}")
        try:
            await first_life.send(Message("OrderBills", b"bill of a ghost"))
        except ProducerFenced:
            print("the first life is fenced")

    async with Consumer(namesrv, None, {"OrderBills": "*"}, assign="all", offsets=None) as consumer:
        bills = []
        while messages := await consumer.poll(timeout_s=1):
            bills += [message.body.decode() for message in messages]
    print(f"{len(bills)} bills, {len(set(bills))} different ones")


async def live(namesrv: str, life: int, end: str, producer: Producer | None) -> None:
    """Make bills of orders, five at a time, until there are no more, or the program ends."""
    if producer is None:
        async with Producer(namesrv, group="billing", name="billing-1") as own:
            await live(namesrv, life, end, own)
        return
    async with Consumer(namesrv, "billing", {"PaidOrders": "*"}, auto_commit=False) as consumer:
        with anyio.move_on_after(20):
            while orders := await consumer.poll(5, timeout_s=2):
                async with consumer.transaction(producer) as transaction:
                    for order in orders:
                        await transaction.send(Message("OrderBills", b"bill of " + order.body))
                    if end == "before":
                        raise ConnectionError("the lights went out, and no bill was stored")
                print(f"life {life}: {len(orders)} bills")
                if end == "after":
                    raise ConnectionError("the lights went out, and the bills were stored")


if __name__ == "__main__":
    anyio.run(main)
