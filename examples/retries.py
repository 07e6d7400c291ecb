"""Work that may fail: a message that can't be handled now comes again, one that never can is kept.

    mqcluster up --dir /tmp/mq
    python examples/retries.py [NAMESRV]

NAMESRV is the name server's address, by default 127.0.0.1:9876. The bank is down at first, and one
payment has no amount at all. It is sent again when somebody has repaired the till.
"""

from __future__ import annotations

import sys
import threading

from mqclient import ClientClosed, Message, Nack, ReceivedMessage
from mqclient.blocking import Admin, Consumer, Producer


def main() -> None:
    """Take three payments: one works at once, one later, and one never."""
    namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    done = threading.Event()

    def pay(message: ReceivedMessage) -> None:
        try:
            amount = int(message.body)
        except ValueError:
            print(f"given up: {message.body.decode()!r} is not an amount", flush=True)
            raise Nack(delay_level=-1) from None
        if amount > 100 and message.reconsume_times == 0:
            print(f"not yet: the bank does not answer for {amount}", flush=True)
            raise Nack(delay_s=0.5)
        print(f"paid {amount}, at try {message.reconsume_times + 1}", flush=True)
        if amount > 100:
            done.set()

    def work(consumer: Consumer) -> None:
        try:
            consumer.run(pay)
        except ClientClosed:
            return

    with Producer(namesrv, group="shop") as producer:
        for amount in (b"250", b"much", b"20"):
            producer.send(Message("Payments", amount), key="one till")
    with Consumer(namesrv, group="cashier", subscriptions={"Payments": "*"}) as consumer:
        worker = threading.Thread(target=work, args=(consumer,))
        worker.start()
        done.wait(30)
    worker.join()
    with Admin(namesrv) as admin:
        for dead in admin.dead_letters.redrive("cashier"):
            print(f"back to {dead.origin_topic}: {dead.text!r}", flush=True)


if __name__ == "__main__":
    main()
