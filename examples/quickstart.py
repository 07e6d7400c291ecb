"""Send some messages and read them back, in a program without an event loop.

    mqcluster up --dir /tmp/mq
    python examples/quickstart.py [NAMESRV]

NAMESRV is the name server's address, by default 127.0.0.1:9876.
"""

from __future__ import annotations

import sys

from mqclient import Message
from mqclient.blocking import Consumer, Producer


def main() -> None:
    """Send ten orders of three customers: those of one customer stay in order."""
    namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"

    with Producer(namesrv, group="shop") as producer:
        for number in range(10):
            customer = f"customer-{number % 3}"
            message = Message("Orders", f"order {number}".encode(), keys=customer, tags="new")
            result = producer.send(message, key=customer)
            print(f"sent {number} of {customer}: {result.broker_name} queue {result.queue_id}")

    with Consumer(namesrv, group="billing", subscriptions={"Orders": "new"}) as consumer:
        read = 0
        while read < 10:
            for received in consumer.poll(max_messages=10, timeout_s=5):
                print(f"read {received.body.decode()!r} of {received.keys}")
                read += 1
            consumer.commit()


if __name__ == "__main__":
    main()
