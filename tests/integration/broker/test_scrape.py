"""Scrapes of a TLS cluster by a real Prometheus: with a proof, and without."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import trio

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import AUTHORITY, CERTIFICATE, KEY, plan, ports_needed
from mqchaos.cluster.probe import Probe
from mqchaos.cluster.processes import free_ports

from .prometheus import Prometheus, prometheus

TOKEN = " ".join(["the token of this cluster"])
PASSWORD = " ".join(["of prometheus"])
PATIENCE_S = 60.0


def job(name: str, ports: list[int], scheme: str, *, tls: str = "", proof: str = "") -> str:
    """A scrape config with one job."""
    lines = [
        f"  - job_name: {name}",
        f"    scheme: {scheme}",
        f"    static_configs: [{{targets: {[f'127.0.0.1:{port}' for port in ports]}}}]",
    ]
    if tls:
        lines.append(f"    tls_config: {{{tls}}}")
    if proof:
        lines.append(f"    {proof}")
    return "\n" + "\n".join(lines)


def encrypted(cluster: Cluster) -> str:
    """The part of a scrape config that says how to reach such a cluster."""
    folder = cluster.directory / "tls"
    ca = f"ca_file: {cluster.directory / AUTHORITY}"
    return f"{ca}, cert_file: {folder / CERTIFICATE}, key_file: {folder / KEY}"


def with_token(cluster: Cluster) -> str:
    """The part that shows its token."""
    return f"authorization: {{credentials_file: {cluster.directory / 'metrics.token'}}}"


def cluster_with_figures(folder: Path, nodes: int = 3) -> tuple[Cluster, list[int]]:
    """A name server and a broker group, TLS alone, certificates wanted, and a token."""
    ports = free_ports(ports_needed(nodes, 1, 1) + nodes + 1)
    figures, rest = ports[: nodes + 1], ports[nodes + 1 :]
    cluster = Cluster.create(folder / "cluster", plan(rest, nodes, tls=True))
    token = cluster.directory / "metrics.token"
    token.touch(0o600)
    token.write_text(TOKEN)
    for name, port in zip(cluster.names, figures, strict=True):
        kind = "namesrv.toml" if name.startswith("namesrv") else "broker.toml"
        with (cluster.folder(name) / kind).open("a") as config:
            config.write(
                f'metricsExporterType = "PROM"\nmetricsPromExporterPort = {port}\n'
                f'metricsTokenFile = "{token}"\n"tls.server.need.client.auth" = "require"\n'
            )
    return cluster, figures


async def until_up(running: Prometheus, wanted: dict[str, int]) -> None:
    """Wait until this number of servers of each job is up."""
    found: dict[str, int] = {}
    with trio.move_on_after(PATIENCE_S):
        while found != wanted:
            await trio.sleep(0.5)
            try:
                series = await running.query("up")
            except OSError:
                continue
            counted: Counter[str] = Counter()
            for each in series:
                counted[each["metric"]["job"]] += int(each["value"][1])
            found = dict(counted)
        return
    raise AssertionError(f"{found} are up, and not {wanted}")


async def test_prometheus_scrapes_by_tls_with_a_proof(tools: Path, tmp_path: Path) -> None:
    """A scrape by TLS needs a token or a user's password, and the cluster's certificate."""
    cluster, figures = cluster_with_figures(tmp_path)
    own, token = encrypted(cluster), with_token(cluster)
    ca = f"ca_file: {cluster.directory / AUTHORITY}"
    user = f"basic_auth: {{username: prometheus, password: {PASSWORD}}}"
    jobs = (
        job("token", figures, "https", tls=own, proof=token)
        + job("user", figures, "https", tls=own, proof=user)
        + job("no_proof", figures, "https", tls=own)
        + job("no_certificate", figures, "https", tls=ca, proof=token)
        + job("plain", figures, "http", proof=token)
        + "\n"
    )
    with cluster.running():
        async with cluster.pool() as pool:
            await Probe(cluster, pool).wait_until_serving()
        async with cluster.admin() as admin:
            await admin.users.create("prometheus", PASSWORD)
            await admin.rights.grant("prometheus", ["Cluster:*"], ["Get"])
        async with prometheus(tools, tmp_path, jobs=jobs) as running:
            refused = {"no_proof": 0, "no_certificate": 0, "plain": 0}
            await until_up(running, {"token": 4, "user": 4} | refused)
            ends = await running.query('dledger_certificate_end_timestamp_seconds{job="token"}')
            assert [float(each["value"][1]) > time.time() for each in ends] == [True] * 4
