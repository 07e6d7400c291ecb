"""RocketMQ's own first steps: quickstart Producer and Consumer of its examples, as published."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from clients import EXAMPLES, Client, each_of, java, ready

from mqchaos.cluster.cluster import Cluster

PACKAGE = "org.apache.rocketmq.example.quickstart"
MESSAGES = 1000
"""Messages of the examples' producer."""
PRODUCER_TIMEOUT_S = 60
CONSUMER_TIMEOUT_S = 60


@pytest.mark.parametrize("client", each_of("java4", "java5"))
def test_the_quickstart_examples_run(cluster: Cluster, client: Client, tmp_path: Path) -> None:
    """The producer's thousand messages are sent, and its consumer receives each of them."""
    ready(client)
    environment = {**os.environ, "NAMESRV_ADDR": cluster.layout.namesrv_addr}
    start = {"cwd": client.home, "env": environment, "stdin": subprocess.DEVNULL}

    produced = subprocess.run(
        [*java(client), f"{PACKAGE}.Producer"],
        capture_output=True,
        text=True,
        timeout=PRODUCER_TIMEOUT_S,
        check=False,
        **start,
    )
    sent = re.findall(r"sendStatus=SEND_OK, msgId=(\w+)", produced.stdout)
    assert len(set(sent)) == MESSAGES, produced.stdout[-500:] + produced.stderr[-500:]

    output = tmp_path / "consumer.txt"
    with output.open("w") as file:
        consumer = subprocess.Popen([*java(client), f"{PACKAGE}.Consumer"], stdout=file, **start)
        with consumer:
            try:
                missing = set(sent)
                deadline = time.monotonic() + CONSUMER_TIMEOUT_S
                while missing and time.monotonic() < deadline:
                    time.sleep(0.5)
                    missing = set(sent) - set(re.findall(r"UNIQ_KEY=(\w+)", output.read_text()))
            finally:
                consumer.kill()
    assert not missing, (
        f"{len(missing)} of {MESSAGES} with the examples of {EXAMPLES[client.version]}"
    )
