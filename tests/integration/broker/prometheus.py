"""A real Prometheus for tests: Debian's package, fetched once into `.cache/prometheus`."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import trio
from pages import fetched

from mqchaos.cluster.processes import free_ports

CACHE = Path(__file__).parents[3] / ".cache" / "prometheus"
START_S = 60


def tools_or_skip() -> Path:
    """The folder with prometheus and promtool; a test without them is skipped, with the reason."""
    there = shutil.which("promtool")
    if there is not None:
        return Path(there).parent
    reason = "" if CACHE.exists() else _fetched()
    if reason:
        pytest.skip(reason)
    return CACHE


def _fetched() -> str:
    """Fetch Debian's Prometheus; returns the reason if that can't be done."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "there is no apt-get here, and no Prometheus"
    CACHE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
        download = ("apt-get", "download", "prometheus")
        done = subprocess.run(download, cwd=folder, capture_output=True, text=True, check=False)
        packages = [*Path(folder).glob("*.deb")]
        if not packages:
            return f"Prometheus can't be fetched: {done.stderr.strip()[-200:]}"
        unpacked = Path(folder, "unpacked")
        subprocess.run(("dpkg", "-x", packages[0], unpacked), check=True, capture_output=True)
        if not CACHE.exists():
            (unpacked / "usr" / "bin").rename(CACHE)
    return ""


class Prometheus:
    """A running Prometheus, which scrapes once a second."""

    def __init__(self, folder: Path, port: int) -> None:
        self._targets = folder / "targets.json"
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def scrape(self, addresses: list[str]) -> None:
        """Make Prometheus scrape these addresses from now on."""
        written = self._targets.with_suffix(".new")
        written.write_text(json.dumps([{"targets": addresses}]))
        written.rename(self._targets)

    async def asked(self, path: str) -> Any:
        """Ask the server for a path. OSError also while it starts."""
        status, body = await trio.to_thread.run_sync(fetched, f"{self._url}/{path}")
        if status != HTTPStatus.OK:
            raise OSError(f"Prometheus answers {path} with {status}: {body}")
        return json.loads(body)["data"]

    async def started(self) -> None:
        """Wait until the server answers."""
        with trio.fail_after(START_S):
            while True:
                try:
                    await self.query("up")
                except OSError:
                    await trio.sleep(0.2)
                else:
                    return

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression gives now."""
        words = urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = (await self.asked(f"query?{words}"))["result"]
        return found

    async def firing(self) -> set[str]:
        """The alerts that fire now."""
        found = (await self.asked("alerts"))["alerts"]
        return {each["labels"]["alertname"] for each in found if each["state"] == "firing"}

    async def until(self, wanted: set[str], within_s: float) -> None:
        """Wait until just these alerts fire."""
        found: set[str] | None = None
        with trio.move_on_after(within_s):
            while found != wanted:
                await trio.sleep(0.25)
                try:
                    found = await self.firing()
                except OSError:
                    continue
            return
        raise AssertionError(f"{found} fire, and not {wanted}")


JOB = """
  - job_name: dledger
    file_sd_configs: [{files: [targets.json], refresh_interval: 1s}]
"""


@asynccontextmanager
async def prometheus(
    tools: Path, folder: Path, rules: str = "", jobs: str = JOB
) -> AsyncIterator[Prometheus]:
    """Run one until the block is left. `jobs`: its scrape configs."""
    (port,) = free_ports(1)
    (folder / "alerts.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [alerts.yml]\nscrape_configs:{jobs}"
    )
    running = Prometheus(folder, port)
    running.scrape([])
    command = [
        str(tools / "prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        async with trio.open_nursery() as nursery:
            start = partial(trio.run_process, command, stdout=log, stderr=log, check=False)
            process = await nursery.start(start)
            yield running
            process.terminate()
