"""Work whose order counts: an account's bookings one after the other, accounts side by side.

    mqcluster up --dir /tmp/mq
    python examples/ordered.py [NAMESRV]

NAMESRV is the name server's address, by default 127.0.0.1:9876. One booking fails twice: what is
behind it on its account waits, the other accounts go on.
"""

from __future__ import annotations

import sys
from collections import Counter

import anyio

from mqclient import Admin, Consumer, Message, Producer, ReceivedMessage

ACCOUNTS = ("ann", "bob", "eve")


async def main() -> None:
    """Three bookings for each of three accounts, all in one queue."""
    namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    booked: dict[str, list[int]] = {account: [] for account in ACCOUNTS}
    tries = Counter[bytes]()

    async with Admin(namesrv) as admin:
        await admin.topics.update("Bookings", read_queues=1, write_queues=1)
    async with Producer(namesrv, group="bank") as producer:
        for number in (1, 2, 3):
            for account in ACCOUNTS:
                body = f"{account} {number}".encode()
                await producer.send(Message("Bookings", body, keys=account))

    async def book(message: ReceivedMessage) -> None:
        account, number = message.body.decode().split()
        tries[message.body] += 1
        if message.body == b"bob 1" and tries[message.body] < 3:
            raise ConnectionError("the ledger of bob does not answer")
        booked[account].append(int(number))
        if all(len(numbers) == 3 for numbers in booked.values()):
            scope.cancel()

    async with Consumer(
        namesrv, "ledger", {"Bookings": "*"}, ordered=True, retry_delays_s=[0.2]
    ) as consumer:
        with anyio.move_on_after(30) as scope:
            await consumer.run(book, concurrency=8, order="key")
    for account, numbers in booked.items():
        print(f"{account}: {numbers}", flush=True)


if __name__ == "__main__":
    anyio.run(main)
