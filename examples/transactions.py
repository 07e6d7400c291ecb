"""A message that is seen only if a row is in the database: also when the program fails between.

    mqcluster up --dir /tmp/mq
    python examples/transactions.py [NAMESRV]

NAMESRV is the name server's address, by default 127.0.0.1:9876. It takes some ten seconds: that
long the broker waits before it asks what became of a transaction that nobody ended.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from mqclient import Decision, Message, ReceivedMessage
from mqclient.blocking import Consumer, Producer


class Shop:
    """Orders in a database of its own, each announced by a message."""

    def __init__(self, database: Path) -> None:
        self._database = database
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("create table orders (id text primary key)")

    def take(self, producer: Producer, order: str, *, fail: str = "") -> None:
        """Write an order down and announce it: both, or neither."""
        with producer.transaction(Message("Shipments", order.encode(), keys=order)):
            if fail == "before":
                raise ConnectionError("the database is gone")
            with closing(sqlite3.connect(self._database)) as connection, connection:
                connection.execute("insert into orders values (?)", (order,))
            if fail == "after":
                raise ConnectionError("the lights went out")

    def check(self, message: ReceivedMessage) -> Decision:
        """A broker asks whether an order was taken: the database knows."""
        query = "select 1 from orders where id = ?"
        with closing(sqlite3.connect(self._database)) as connection, connection:
            found = connection.execute(query, (message.keys,)).fetchone()
        print(f"asked about {message.keys}: {'there' if found else 'not there'}")
        return Decision.COMMIT if found else Decision.ROLLBACK


def main() -> None:
    """Place three orders: one works, two fail, but one of those is in the database."""
    namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

    with tempfile.TemporaryDirectory() as directory:
        shop = Shop(Path(directory, "orders.db"))
        with Producer(namesrv, group="shop", checker=shop.check) as producer:
            # Brokers shall know whom to ask before the first order.
            producer.prepare("Shipments")
            shop.take(producer, "order-1")
            for order, fail in (("order-2", "before"), ("order-3", "after")):
                try:
                    shop.take(producer, order, fail=fail)
                except ConnectionError as error:
                    print(f"{order} failed: {error}")

            with Consumer(namesrv, "packing", {"Shipments": "*"}) as consumer:
                packed: set[str] = set()
                while len(packed) < 2:
                    for received in consumer.poll(timeout_s=1.0):
                        packed.add(received.keys)
                        print(f"packed {received.keys}")


if __name__ == "__main__":
    main()
