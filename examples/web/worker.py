"""A worker that handles orders until SIGTERM or Ctrl-C: `python worker.py 127.0.0.1:9876`.

At the signal it takes no more messages, finishes those that it has begun, commits, and leaves its
group, so that other workers go on at once and nothing is handled twice. Under systemd or Kubernetes
nothing else is needed.
"""

import asyncio
import sys

from mqclient import Consumer, ReceivedMessage, run_until_signal
from mqclient.contrib.codecs import JSON


async def handle(message: ReceivedMessage) -> None:
    """Do the work; an exception would bring the message again later."""
    order = message.value
    await asyncio.sleep(0.02)
    print(f"billed {order['id']} of {order['customer']}", flush=True)


async def main(namesrv: str) -> None:
    """Handle eight orders at a time, each customer's in their order."""
    subscriptions = {"Orders": "*"}
    async with Consumer(namesrv, "billing", subscriptions, decode=JSON.decode) as consumer:
        await run_until_signal(lambda: consumer.run(handle, 8, order="key"), consumer)
    print("stopped in order")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
