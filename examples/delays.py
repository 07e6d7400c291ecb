"""Messages for later: after a while, at a time, and taken back in time.

    mqcluster up --dir /tmp/mq
    python examples/delays.py [NAMESRV]

NAMESRV is the name server's address, by default 127.0.0.1:9876.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta

from mqclient import Message
from mqclient.blocking import Consumer, Producer


def main() -> None:
    """Send three reminders, and recall one that is not needed any more."""
    namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    began_s = time.monotonic()

    with Producer(namesrv, group="reminders") as producer:
        producer.send(Message("Reminders", b"in two seconds", delay_s=2))
        at = datetime.now(UTC) + timedelta(seconds=3)
        producer.send(Message("Reminders", b"at that time", deliver_at=at))
        unneeded = producer.send(Message("Reminders", b"never mind", delay_s=3))
        producer.recall(unneeded)

    with Consumer(namesrv, group="reminded", subscriptions={"Reminders": "*"}) as consumer:
        while time.monotonic() - began_s < 5:
            for received in consumer.poll(timeout_s=0.5):
                waited_s = time.monotonic() - began_s
                print(f"after {waited_s:.1f} s: {received.body.decode()!r}")


if __name__ == "__main__":
    main()
