"""Stock clients and stock mqadmin at a cluster that enforces rights, as users who may and who may
not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from clients import Client, Missing, each_of, java
from mqadmin import END

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports
from mqclient import Admin

pytestmark = [pytest.mark.slow, pytest.mark.conformance]

PASSWORD = "a-password"  # noqa: S105
TIMEOUT_S = 120


@pytest.fixture(scope="module")
def enforcing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A group of three that enforces, with users: a super user, one who sends, one who reads."""
    layout = plan(free_ports(7), nodes=3, groups=1, namesrvs=1)
    cluster = Cluster.create(tmp_path_factory.mktemp("signed") / "cluster", layout)
    try:
        cluster.start()
        trio.run(prepare, cluster)
        yield cluster
        assert cluster.stop() == []
    finally:
        cluster.kill_all()


async def prepare(cluster: Cluster) -> None:
    """As whoever has the cluster's secret."""
    await serving(cluster)
    async with Admin(cluster.layout.namesrv_addr, secret_file=cluster.secret_file) as admin:
        await admin.topics.update("Orders", read_queues=2, write_queues=2)
        await admin.users.create("root", PASSWORD, super_user=True)
        for name, resources, action in (
            ("sender", ["Topic:Orders"], "Pub"),
            ("reader", ["Topic:Orders", "Group:Readers"], "Sub"),
        ):
            await admin.users.create(name, PASSWORD)
            await admin.rights.grant(name, resources, [action])
        await admin.settings.update_broker_config("authorizationMode", "enforce")


def prepared(client: Client) -> Client:
    """The client, fetched and built."""
    try:
        client.prepare(client)
    except Missing as reason:
        pytest.skip(f"{client.title} {client.version}: {reason}")
    return client


def run(client: Client, cluster: Cluster, sender: str, reader: str, password: str) -> list[str]:
    """What the Java client's program prints."""
    arguments = [cluster.layout.namesrv_addr, "Orders", "Readers", sender, reader]
    done = subprocess.run(
        [*java(client), "Signed", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PASSWORD": password},
    )
    return [line for line in done.stdout.splitlines() if line.startswith(WORDS)]


WORDS = ("SEND_OK", "RECEIVED", "MISSING", "REFUSED")


@pytest.mark.parametrize("client", each_of("java4", "java5"))
def test_java_clients_sign(client: Client, enforcing: Cluster) -> None:
    """As users who may, all is served; another password and a user who may not are told so."""
    client = prepared(client)
    assert run(client, enforcing, "sender", "reader", PASSWORD) == ["SEND_OK"] * 3 + ["RECEIVED"]
    (refused,) = run(client, enforcing, "sender", "reader", "another")
    assert "check signature failed" in refused
    (refused,) = run(client, enforcing, "reader", "reader", PASSWORD)
    assert "User:reader has no permission to access Topic:Orders" in refused


@pytest.mark.parametrize("client", each_of("java5"))
def test_stock_mqadmin_administrates_users(
    client: Client, enforcing: Cluster, tmp_path: Path
) -> None:
    """createUser to listAcl of 5.5, signed by its tools.yml; it asks leader and followers alike."""
    client = prepared(client)
    home = tmp_path / "mqadmin"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "tools.yml").write_text(f"accessKey: root\nsecretKey: {PASSWORD}\n")
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
    acl = "-c DefaultCluster -s User:ann"
    lines = {
        "createUser -c DefaultCluster -u ann -p a-secret": ("create user to", "success"),
        "updateUser -c DefaultCluster -u ann -s disable": ("update user to", "success"),
        "listUser -c DefaultCluster -f ann": ("ann", "Normal", "disable"),
        "getUser -c DefaultCluster -u ann": ("ann",),
        f"createAcl {acl} -r Topic:Orders -a Pub,Sub -d Allow": ("create acl to", "success"),
        f"updateAcl {acl} -r Topic:Orders -a Pub -d Deny": ("update acl to", "success"),
        f"getAcl {acl}": ("User:ann", "Topic:Orders", "Pub", "Deny"),
        f"listAcl {acl}": ("User:ann", "Topic:Orders"),
        f"deleteAcl {acl} -r Topic:Orders": ("delete acl to", "success"),
        "deleteUser -c DefaultCluster -u ann": ("delete user to", "success"),
        "updateTopic -c DefaultCluster -t Signed -r 2 -w 2": ("create topic to", "success"),
    }
    argv = java(client, tools=True)
    argv[1:1] = [f"-Drocketmq.home.dir={home}"]
    argv = [each for each in argv if each != f"-Drocketmq.home.dir={client.home / 'mqadmin'}"]
    done = subprocess.run(
        [*argv, "Admin"],
        cwd=home,
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "NAMESRV_ADDR": enforcing.layout.namesrv_addr},
    )
    for (line, words), printed in zip(lines.items(), done.stdout.split(END), strict=False):
        for word in words:
            assert word in printed, f"{line}: {word!r} is missing in:\n{printed}{done.stderr}"
        assert "Exception" not in printed, f"{line}:\n{printed}"
