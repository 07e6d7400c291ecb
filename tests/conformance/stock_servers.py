"""RocketMQ's own name server and broker, from Maven Central, as tests start them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import trio

from mqchaos.cluster.processes import free_ports
from mqclient import Admin
from mqclient.admin import UnknownTarget

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "attach"))

import rocketmq  # noqa: E402 -- the example that starts RocketMQ

BROKER = "stock-broker"
CLUSTER = "stock-cluster"
WAIT_S = 60.0


@contextmanager
def servers(version: str, folder: Path) -> Iterator[str]:
    """A name server and a broker of RocketMQ's; the name server's address."""
    for tool in ("mvn", "java"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    try:
        rocketmq.fetch(version)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"RocketMQ {version}: {error}")
    namesrv, broker = places()
    names = f"127.0.0.1:{namesrv}"
    store = folder / "broker" / "store"
    with ExitStack() as ended:
        start(ended, folder, version, "namesrv", "namesrv.NamesrvStartup", {"listenPort": namesrv})
        rocketmq.wait_for(namesrv)
        settings = {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "brokerIP1": "127.0.0.1",
            "listenPort": broker,
            "namesrvAddr": names,
            "storePathRootDir": store,
            "storePathCommitLog": store / "commitlog",
            "mappedFileSizeCommitLog": 16 << 20,
            "mappedFileSizeConsumeQueue": 300_000,
            "timerWheelEnable": "true",
        }
        start(ended, folder, version, "broker", "broker.BrokerStartup", settings)
        rocketmq.wait_for(broker)
        yield names


def places() -> tuple[int, int]:
    """A port of a name server, and of a broker, which listens two below and one above, too."""
    while True:
        namesrv, *around = sorted(free_ports(5))
        for broker in around:
            if {broker - 2, broker + 1} & {namesrv} == set():
                return namesrv, broker


def start(
    ended: ExitStack,
    folder: Path,
    version: str,
    name: str,
    main: str,
    settings: Mapping[str, object],
) -> None:
    """Start a server with a configuration file; it is killed at the end."""
    home = folder / name
    home.mkdir(parents=True)
    config = home / "settings.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    main = f"org.apache.rocketmq.{main}"
    process = rocketmq.java(folder, name, main, "256m", "-c", str(config), version=version)
    ended.callback(process.wait)
    ended.callback(process.kill)


async def registered(address: str) -> None:
    """Wait until the name server knows the broker."""
    async with Admin(address) as admin:
        with trio.fail_after(WAIT_S):
            while True:
                with suppress(UnknownTarget):
                    await admin.brokers.list()
                    return
                await trio.sleep(0.2)
