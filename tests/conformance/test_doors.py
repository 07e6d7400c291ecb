"""Stock clients at guarded clusters: signed, over TLS, as users with rights and without.

Each test of clients is a row of docs/reference/compatibility.md.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace as but
from pathlib import Path

import pytest
import trio
from _pytest.mark import ParameterSet
from clients import CLIENTS, Client, each_of, java, ready
from clusters import new_cluster
from doors import DOORS
from drivers import Run
from judges import Scenario, judge
from mqadmin import END

from dledger.tls.authority import Authority
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import AUTHORITY, CERTIFICATE, KEY, TLS_FOLDER
from mqchaos.cluster.probe import serving
from mqclient import Admin

PASSWORD = "a-password"  # noqa: S105
TIMEOUT_S = 120
SENDS = "send_sync"
"""The drivers' feature here: send, and read back."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for clusters and their clients' files."""
    return tmp_path_factory.mktemp("doors")


def running(cluster: Cluster) -> Iterator[Cluster]:
    """Users, and rights that are enforced."""
    with cluster.running():
        trio.run(prepare, cluster)
        yield cluster
        assert cluster.stop() == []


async def prepare(cluster: Cluster) -> None:
    """Give one user all rights of these tests and another none, by the cluster's secret."""
    await serving(cluster)
    secret, tls = cluster.secret_file, cluster.tls
    async with Admin(cluster.layout.namesrv_addr, secret_file=secret, tls=tls) as admin:
        topics = ["Orders", *(f"{client.name}_{SENDS}" for client in CLIENTS)]
        for topic in topics:
            await admin.topics.update(topic, read_queues=2, write_queues=2)
        await admin.users.create("root", PASSWORD, super_user=True)
        for name in ("may", "may-not"):
            await admin.users.create(name, PASSWORD)
        mine = [f"{kind}:{topic}" for kind in ("Topic", "Group") for topic in (*topics, "Readers")]
        await admin.rights.grant("may", mine, ["Pub", "Sub"])
        await admin.settings.update_broker_config("authorizationMode", "enforce")


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[Cluster]:
    """A cluster whose ports take plain text alone."""
    yield from running(new_cluster(folder / "plain"))


@pytest.fixture(scope="module")
def encrypted(folder: Path) -> Iterator[Cluster]:
    """A cluster whose ports take TLS alone; who shows a certificate must have one of its
    authority."""
    cluster = new_cluster(folder / "encrypted", tls=True)
    for config in cluster.directory.glob("*/*.toml"):
        with config.open("a") as file:
            print('"tls.server.need.client.auth" = "optional"', file=file)
    yield from running(cluster)


def row(door: str) -> pytest.MarkDecorator:
    """The clients of a row of the page; the older of two releases run with `--all` only."""
    parameters: list[ParameterSet] = [
        pytest.param(
            client, door, id=client.name, marks=[pytest.mark.long] * (client.name != "java5")
        )
        for client in CLIENTS
        if client.name in DOORS[door].clients
    ]
    return pytest.mark.parametrize(("client", "door"), parameters)


def told(client: Client, cluster: Cluster, user: str, password: str = PASSWORD) -> Scenario:
    """Events of a client's driver that signs as a user."""
    argv = ready(client)
    if client.name.startswith("java"):
        return said_by_java(client, cluster, [], user, password)
    environment = {"SIGN_AS": user, "PASSWORD": password}
    output = cluster.directory.parent / f"{client.name}-{user}-{password}"
    output.mkdir()
    alone = but(client, features=(SENDS,))
    done = Run(alone, argv, cluster.layout.namesrv_addr, output, environment)
    return done.scenarios(TIMEOUT_S)[SENDS]


def said_by_java(
    client: Client, cluster: Cluster, options: list[str], user: str, password: str = PASSWORD
) -> Scenario:
    """Words of the program Signed, made events."""
    ready(client)
    argv = java(client)
    argv[1:1] = options
    done = subprocess.run(
        [*argv, "Signed", cluster.layout.namesrv_addr, "Orders", "Readers", user, user],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "PASSWORD": password},
    )
    events = []
    for line in done.stdout.splitlines():
        if line.startswith("REFUSED"):
            events.append({"what": "error", "error": line})
        elif line in ("SEND_OK", "RECEIVED", "MISSING"):
            events.append({"what": line})
    return Scenario(client.name, "", tuple(events))


def check_served(scenario: Scenario) -> None:
    """Assert that all sent messages were received."""
    if scenario.feature:
        judge(scenario)
    else:
        assert [each["what"] for each in scenario.events] == ["SEND_OK"] * 3 + ["RECEIVED"]


def check_refused(scenario: Scenario, *words: str) -> None:
    """Assert that nothing was sent or received, and that the error has one of these words."""
    errors = [str(event.get("error")) for event in scenario.of("error")]
    assert not scenario.of("SEND_OK")
    assert not scenario.of("sent")
    assert not scenario.of("received")
    assert errors, "the application was told nothing"
    assert any(word in error for error in errors for word in words), errors


@row("signed")
def test_a_user_who_may_is_served(client: Client, door: str, plain: Cluster) -> None:
    """A user with rights is served, signed as the client signs."""
    check_served(told(client, plain, "may"))


@row("no right")
def test_a_user_who_may_not_is_told_so(client: Client, door: str, plain: Cluster) -> None:
    """A user without rights gets code 16 in RocketMQ's words; the C++ client shows the code."""
    check_refused(told(client, plain, "may-not"), *DOORS[door].words)


@row("wrong password")
def test_a_wrong_password_is_told_so(client: Client, door: str, plain: Cluster) -> None:
    """A wrong password gets code 16, too."""
    check_refused(told(client, plain, "may", "another"), *DOORS[door].words)


UNREACHED = ("connect to", "No route", "send request to")
"""Words of a Java client about servers that it can't speak to."""
TRUSTING = ["-Dtls.enable=true"]
"""A stock client that asks for TLS: by default it takes any certificate."""


def verifying(cluster: Cluster, folder: Path, ca: Path, *, shows: bool = False) -> list[str]:
    """Options for one that looks who signed, by the file that RocketMQ's page names; it may show a
    certificate of its own."""
    own = cluster.directory / TLS_FOLDER
    lines = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(ca),
    }
    if shows:
        lines["tls.client.certPath"] = str(own / CERTIFICATE)
        lines["tls.client.keyPath"] = str(own / KEY)
    path = folder / f"tls-{ca.stem}-{shows}.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return [*TRUSTING, f"-Dtls.config.file={path}"]


@row("tls")
def test_a_client_that_takes_any_certificate_is_served(
    client: Client, door: str, encrypted: Cluster
) -> None:
    """A client that takes any certificate is served over TLS, as with `tls.enable` by itself."""
    check_served(said_by_java(client, encrypted, TRUSTING, "may"))


@row("tls, authority")
def test_a_client_that_looks_who_signed_is_served(
    client: Client, door: str, encrypted: Cluster, folder: Path
) -> None:
    """A client that trusts our authority is served; with another one it reaches no server."""
    ca, other = encrypted.directory / AUTHORITY, folder / "other.pem"
    other.write_bytes(Authority.make("another").pair.certificate)
    check_served(said_by_java(client, encrypted, verifying(encrypted, folder, ca), "may"))
    options = verifying(encrypted, folder, other)
    check_refused(said_by_java(client, encrypted, options, "may"), *UNREACHED)


@row("tls, own certificate")
def test_a_client_that_shows_a_certificate_is_served(
    client: Client, door: str, encrypted: Cluster, folder: Path
) -> None:
    """A client is served with a certificate of the servers' authority, as of `mqcluster --tls`."""
    options = verifying(encrypted, folder, encrypted.directory / AUTHORITY, shows=True)
    check_served(said_by_java(client, encrypted, options, "may"))


@row("tls, no right")
def test_over_tls_a_user_who_may_not_is_told_so(
    client: Client, door: str, encrypted: Cluster
) -> None:
    """A user without rights is refused over TLS as over plain text."""
    refused = said_by_java(client, encrypted, TRUSTING, "may-not")
    check_refused(refused, *DOORS[door].words)


@row("plain, enforcing")
def test_plain_text_is_not_taken_where_tls_is_enforced(
    client: Client, door: str, encrypted: Cluster
) -> None:
    """The client is told that it can't connect; nothing is sent."""
    check_refused(said_by_java(client, encrypted, [], "may"), *UNREACHED)


@pytest.mark.parametrize("client", each_of("java5"))
def test_stock_mqadmin_administrates_users(client: Client, plain: Cluster, tmp_path: Path) -> None:
    """Stock mqadmin 5.5 runs createUser to listAcl, signed by its tools.yml, on all members."""
    ready(client)
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
        env={**os.environ, "NAMESRV_ADDR": plain.layout.namesrv_addr},
    )
    for (line, words), printed in zip(lines.items(), done.stdout.split(END), strict=False):
        for word in words:
            assert word in printed, f"{line}: {word!r} is missing in:\n{printed}{done.stderr}"
        assert "Exception" not in printed, f"{line}:\n{printed}"
