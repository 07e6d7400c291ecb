"""A print shop: what expires, what is large, what belongs together, what comes first, and the pace.

    mqcluster up --dir /tmp/mq
    python examples/printshop.py [NAMESRV]

NAMESRV is the name server's address, by default 127.0.0.1:9876.
"""

from __future__ import annotations

import sys
import time
from zlib import crc32

from mqclient import Message
from mqclient.blocking import Admin, Consumer, PopConsumer, Producer

MIB = 1 << 20


def offers(namesrv: str) -> None:
    """An offer of the hour is of no use an hour later: `ttl_s`."""
    with Producer(namesrv, group="shop") as producer:
        producer.send(Message("Offers", b"half price for a second", ttl_s=1))
        producer.send(Message("Offers", b"open all day"))
    time.sleep(1.5)
    with Consumer(namesrv, group="readers", subscriptions={"Offers": "*"}) as consumer:
        for message in consumer.poll(timeout_s=5):
            print(f"offer: {message.body.decode()}")


def books(namesrv: str) -> None:
    """A book is larger than a message may be: `send_large`, and it arrives whole."""
    book = b"Once upon a time. " * (10 * MIB // 18)
    with Producer(namesrv, group="shop") as producer:
        producer.send_large(Message("Books", book, keys="book-1"))
    with Consumer(namesrv, group="binders", subscriptions={"Books": "*"}) as consumer:
        for message in consumer.poll(timeout_s=10):
            same = crc32(message.body) == crc32(book)
            print(f"{message.keys}: {len(message.body)} bytes, {'whole' if same else 'torn'}")


def accounts(namesrv: str) -> None:
    """A payment is two bookings, in the queues of two accounts: both are stored, or none."""
    with Producer(namesrv, group="shop") as producer:
        bookings = [Message("Accounts", b"customer -20"), Message("Accounts", b"till +20")]
        sent = producer.send_batch(bookings, keys=["customer", "till"])
        print(f"booked in one entry: {sorted({each.queue_id for each in sent})}")


def jobs(namesrv: str) -> None:
    """A rush job is printed before the others: `priority`, in a topic for it."""
    with Admin(namesrv) as admin:
        admin.topics.update("PrintJobs", attributes="+message.type=PRIORITY")
    with Producer(namesrv, group="shop") as producer:
        for priority, name in ((0, b"poster"), (0, b"flyer"), (7, b"wedding invitation")):
            producer.send(Message("PrintJobs", name, priority=priority))
    with PopConsumer(namesrv, "printers", {"PrintJobs": "*"}) as consumer:
        for message in consumer.poll(max_messages=3, timeout_s=5):
            print(f"printed: {message.body.decode()}")
            consumer.ack(message)


def proofs(namesrv: str) -> None:
    """Send ten pages a second to the proof reader; a faster sender waits within its deadline."""
    with Admin(namesrv) as admin:
        admin.topics.update("Proofs", attributes="+send.rate.messages=10")
        with Producer(namesrv, group="shop", timeout_s=10) as producer:
            began_s = time.monotonic()
            for number in range(25):
                producer.send(Message("Proofs", b"page %d" % number))
            took_s = time.monotonic() - began_s
        (rate,) = admin.statistics.rates()
        held_back = "some held back" if rate.held_back_1_min else "none held back"
        print(f"25 pages at {rate.messages_per_s} a second: {took_s:.1f} s, {held_back}")


def main() -> None:
    """Run the five parts one after the other."""
    namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    for part in (offers, books, accounts, jobs, proofs):
        part(namesrv)


if __name__ == "__main__":
    main()
