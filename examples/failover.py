"""Lose the leader in the middle of sending, and see what the program notices of it: a pause.

    python examples/failover.py

Starts a cluster of its own in a temporary directory and removes it in the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import trio

from mqclient import Message, Producer


def mqcluster(*arguments: str) -> str:
    """Run a command line of mqcluster, as you would type it in a terminal."""
    argv = [sys.executable, "-m", "mqchaos.mqcluster", *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


async def send(namesrv: str, directory: str) -> None:
    """Send 300 messages one after the other; at the hundredth, somebody kills the leader."""
    slowest_s, slowest = 0.0, 0
    async with Producer(namesrv, group="failover") as producer, trio.open_nursery() as nursery:
        for number in range(300):
            if number == 100:
                kill = ("kill", "leader", "--dir", directory)
                nursery.start_soon(trio.to_thread.run_sync, mqcluster, *kill)
            began_s = trio.current_time()
            await producer.send(Message("Failover", f"message {number}".encode()))
            took_s = trio.current_time() - began_s
            if took_s > slowest_s:
                slowest_s, slowest = took_s, number
            await trio.sleep(0.01)
    print(f"300 messages acknowledged; the slowest, number {slowest}, took {slowest_s:.2f} s")


def main() -> None:
    """Cluster up, send through a failover, cluster down."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = str(Path(directory, "cluster"))
        before = json.loads(mqcluster("up", "--dir", cluster, "-o", "json"))
        try:
            print("leader before:", leader_of(before))
            trio.run(send, before["namesrv_addr"], cluster)
            after = json.loads(mqcluster("up", "--dir", cluster, "-o", "json"))
            print("leader after: ", leader_of(after))
        finally:
            mqcluster("down", "--dir", cluster)


def leader_of(status: dict[str, list[dict[str, str]]]) -> str:
    """The leader's name and term in what `mqcluster status -o json` printed."""
    leader = next(server for server in status["servers"] if server["role"] == "leader")
    return f"{leader['name']} (term {leader['term']})"


if __name__ == "__main__":
    main()
