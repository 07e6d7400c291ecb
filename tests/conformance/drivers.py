"""Drivers are run beside each other, and their output is read.

A driver is one process for all of its client's features. It is ended at the deadline whatever it
does; its output until then is judged, and its stderr is kept for the error.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from clients import CACHE, Client, Missing
from judges import Event, Scenario

from mqclient import Admin

DRIVER_TIMEOUT_S = 150


class Run:
    """A driver from its start to its end."""

    def __init__(
        self,
        client: Client,
        argv: list[str],
        namesrv_addr: str,
        output: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.client = client
        self.stdout, self.stderr = output / f"{client.name}.jsonl", output / f"{client.name}.txt"
        arguments = [namesrv_addr, client.name, str(client.at_once), *client.features]
        with self.stdout.open("ab") as out, self.stderr.open("wb") as err:
            self.process = subprocess.Popen(
                [*argv, *arguments],
                cwd=client.home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "HOME": str(client.home), **(environment or {})},
            )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def scenarios(self, timeout_s: float = DRIVER_TIMEOUT_S) -> dict[str, Scenario]:
        """Wait for the end; the events by feature."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        events: dict[str, list[Event]] = defaultdict(list)
        for line in self.stdout.read_text(errors="replace").splitlines():
            if line.startswith("{") and line.endswith("}"):
                event = json.loads(line)
                events[event["feature"]].append(event)
        return {
            feature: Scenario(self.client.name, feature, tuple(events[feature]))
            for feature in self.client.features
        }


def run_all(
    clients: Iterable[Client], namesrv_addr: str, output: Path
) -> tuple[Mapping[str, dict[str, Scenario]], Mapping[str, str]]:
    """Prepare and run the clients: scenarios by client and feature, and why some are missing."""
    CACHE.mkdir(parents=True, exist_ok=True)
    ready, missing = [], {}
    for client in clients:
        try:
            ready.append((client, client.prepare(client)))
        except Missing as reason:
            missing[client.name] = str(reason)
    with ExitStack() as ended:
        runs = [
            ended.enter_context(Run(client, argv, namesrv_addr, output)) for client, argv in ready
        ]
        return {run.client.name: run.scenarios() for run in runs}, missing


async def pop_by_default(admin: Admin, name: str) -> None:
    """Make a group pop the topic of the same name, once it asks for its queues."""
    await admin.groups.update(name)
    await admin.groups.set_request_mode(name, name, "POP")
