"""More workers than queues: each message goes to whoever is free, and a slow one holds up nobody.

    mqcluster up --dir /tmp/mq
    python examples/pop.py [NAMESRV]

NAMESRV is the name server's address, by default 127.0.0.1:9876. Three workers share a topic with
one queue. One of the jobs takes longer than a message stays with a worker by itself; another fails
at its first try.
"""

from __future__ import annotations

import sys

import trio

from mqclient import Admin, Message, Nack, PopConsumer, PoppedMessage, Producer

JOBS = ["quick"] * 10 + ["slow", "failing"]


async def main() -> None:
    """Do twelve jobs, each of them once."""
    namesrv = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
    done: list[str] = []
    all_done = trio.Event()

    async def work(name: str) -> None:
        async def handle(message: PoppedMessage) -> None:
            job = message.body.decode()
            if job == "failing" and message.deliveries == 1:
                print(f"{name} failed; whoever is free tries again", flush=True)
                raise Nack(delay_s=0.5)
            await trio.sleep(2.0 if job == "slow" else 0.05)
            print(f"{name} did the {job} job, delivery {message.deliveries}", flush=True)
            done.append(job)
            if len(done) == len(JOBS):
                all_done.set()

        # Hidden for a second, and longer while the handler is at work.
        async with (
            PopConsumer(namesrv, "workers", {"Jobs": "*"}, invisible_s=1.0) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, handle)
            await all_done.wait()
            nursery.cancel_scope.cancel()

    async with Admin(namesrv) as admin:
        await admin.topics.update("Jobs", read_queues=1, write_queues=1)
    async with Producer(namesrv, group="foreman") as producer:
        for job in JOBS:
            await producer.send(Message("Jobs", job.encode()))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for name in ("Ann", "Bob", "Cid"):
                nursery.start_soon(work, name)
    async with Admin(namesrv) as admin:
        progress = await admin.groups.progress("workers", "Jobs")
        print(f"{progress.lag} jobs left", flush=True)


if __name__ == "__main__":
    trio.run(main)
