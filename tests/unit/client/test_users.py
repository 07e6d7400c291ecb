"""Our clients as users of a cluster that enforces rights: permitted, refused, and why."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from trio.testing import MockClock

from dledger.errors import BadInput
from dledger.limits import LONG_BODY_BYTES, STAMP_AGE_S
from dledger.remoting.bodies.access import ObservedNeed
from dledger.remoting.names import TRACE_TOPIC
from dledger.trust import signatures
from dledger.world import unix_ms
from mqbroker.requests import door
from mqclient import Admin, Consumer, Message, PopConsumer, Producer, blocking
from mqclient.admin.access.suggest import suggested
from mqclient.commands.mqadmin import main
from mqclient.connection import credentials
from mqclient.connection.credentials import Credentials
from mqclient.errors import ClientError, Refused, SendUnknown
from mqlocal import local_cluster, local_cluster_in_thread

WORD = "the word of this cluster"
PASSWORD = "a user's password"  # noqa: S105
SETTINGS = {"dLegerSecret": WORD, "adminAddresses": "10.0.0.0/8"}
TOPIC, GROUP = "Orders", "Workers"


async def prepare(namesrv: str, mode: str = "enforce") -> None:
    """Make a topic, users and their rights as the secret's owner, and set the mode."""
    async with Admin(namesrv, user=None, secret=WORD) as admin:
        await admin.topics.update(TOPIC, read_queues=2, write_queues=2)
        await admin.users.create("root", PASSWORD, super_user=True)
        await admin.users.create("sender", PASSWORD, require_fresh=True)
        await admin.users.create("reader", PASSWORD)
        await admin.rights.grant("sender", [f"Topic:{TOPIC}"], ["Pub"])
        await admin.rights.grant("reader", [f"Topic:{TOPIC}", f"Group:{GROUP}"], ["Sub"])
        await admin.settings.update_broker_config("authorizationMode", mode)


async def test_users_send_and_read_what_they_may(autojump_clock: MockClock) -> None:
    """Users send and read in each way that their rights allow, also over a change of leaders."""
    async with local_cluster(replicas=3, settings=SETTINGS) as cluster:
        namesrv = cluster.namesrv_addr
        await prepare(namesrv)
        async with (
            Producer(namesrv, user="sender", secret=PASSWORD) as producer,
            Consumer(namesrv, GROUP, {TOPIC: "*"}, user="reader", secret=PASSWORD) as consumer,
        ):
            await producer.send(Message(TOPIC, b"one"))
            async for message in consumer:
                assert message.body == b"one"
                break
            async with Admin(namesrv, user="root", secret=PASSWORD) as admin:
                await admin.raft.transfer_leader((await admin.brokers.list())[0].broker_name)
            await producer.send_batch([Message(TOPIC, b"two"), Message(TOPIC, b"two")])
            async for message in consumer:
                assert message.body == b"two"
                break
        async with PopConsumer(namesrv, GROUP, {TOPIC: "*"}, user="reader", secret=PASSWORD) as pop:
            assert await pop.poll()


@pytest.mark.parametrize("server_knows", [True, False])
async def test_a_long_body_is_signed_by_a_hash_that_both_ends_have(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, server_knows: bool
) -> None:
    """A long body is signed by BLAKE3 if both ends have it, hashed once by each."""
    hashed = list[int]()
    real = signatures.blake3()

    def counted() -> signatures.Hasher:
        hashed.append(1)
        assert real is not None
        return real()

    async with local_cluster(replicas=1, settings=SETTINGS) as cluster:
        await prepare(cluster.namesrv_addr)
        monkeypatch.setattr(signatures, "blake3", lambda: counted)
        if not server_knows:
            monkeypatch.setattr(door, "body_hash", lambda: None)
        async with Producer(cluster.namesrv_addr, user="sender", secret=PASSWORD) as producer:
            await producer.send(Message(TOPIC, b"short"))
            assert not hashed
            await producer.send(Message(TOPIC, bytes(LONG_BODY_BYTES)))
    assert len(hashed) == (2 if server_knows else 0)


async def test_who_may_not_is_told_why(autojump_clock: MockClock) -> None:
    """A refusal comes at the call in RocketMQ's words: no user, wrong password, no right."""
    async with local_cluster(replicas=1, settings=SETTINGS) as cluster:
        namesrv = cluster.namesrv_addr
        await prepare(namesrv)
        for user, secret, words in (
            (None, None, "username cannot be null"),
            ("sender", "guess", "check signature failed"),
            ("reader", PASSWORD, "has no permission to access Topic:Orders"),
            ("nobody", PASSWORD, "User:nobody is not found"),
        ):
            async with Producer(namesrv, user=user, secret=secret) as producer:
                with pytest.raises(ClientError, match=words):
                    await producer.send(Message(TOPIC, b""), timeout_s=2)
        async with Admin(namesrv, user="sender", secret=PASSWORD) as admin:
            with pytest.raises(Refused, match="no permission to access Cluster:"):
                await admin.users.create("more", PASSWORD)
            (own,) = await admin.users.get("sender")
            assert (own.name, own.super_user, own.require_fresh) == ("sender", False, True)
            (grant,) = await admin.rights.of_user("sender")
            assert (grant.resource, grant.actions) == (f"Topic:{TOPIC}", ("Pub",))


async def test_explained(autojump_clock: MockClock) -> None:
    """An explanation names the entry that decides, or the one that is needed."""
    async with local_cluster(replicas=1, settings=SETTINGS) as cluster:
        await prepare(cluster.namesrv_addr)
        async with Admin(cluster.namesrv_addr, secret=WORD) as admin:
            await admin.users.create("gone", PASSWORD)
            await admin.users.update("gone", enabled=False)
            await admin.rights.grant("reader", ["Topic:O*"], ["All"], sources=["10.0.0.0/8"])
            await admin.groups.update("g_late")
            for user, resource, source, allowed, because in (
                ("sender", "Topic:Orders", "127.0.0.1", True, "Custom: Allow Pub on Topic:Orders"),
                ("sender", "Topic:Other", "127.0.0.1", False, "no entry matches"),
                ("reader", "Topic:Orders", "10.1.1.1", True, "Topic:O* from 10.0.0.0/8"),
                ("reader", "Topic:Orders", "127.0.0.1", False, "no entry matches"),
                ("reader", f"Topic:%RETRY%{GROUP}", "127.0.0.1", True, f"Sub on Group:{GROUP}"),
                ("reader", f"Topic:%DLQ%{GROUP}", "127.0.0.1", True, f"Sub on Group:{GROUP}"),
                ("reader", "Topic:%DLQ%other", "127.0.0.1", False, "or Group:other with Sub"),
                ("sender", "Topic:%PARTS%Orders", "127.0.0.1", True, "Allow Pub on Topic:Orders"),
                ("reader", "Topic:%RETRY%g_late_Orders", "127.0.0.1", False, "Group:g_late with"),
                ("reader", f"Topic:{TRACE_TOPIC}", "127.0.0.1", True, "every user may"),
                ("sender", "Cluster:any", "127.0.0.1", False, "are of 'DefaultCluster'"),
                ("root", "Cluster:any", "127.0.0.1", True, "super user"),
                ("gone", "Topic:Orders", "127.0.0.1", False, "disabled"),
                ("nobody", "Topic:Orders", "127.0.0.1", False, "no user"),
            ):
                (found,) = await admin.rights.explain(user, resource, "pub", source)
                assert (found.allowed, because in found.because) == (allowed, True), found
            with pytest.raises(BadInput, match="name one resource"):
                await admin.rights.explain("sender", "Topic:*", "Pub")


async def test_observed_first_then_enforced(autojump_clock: MockClock) -> None:
    """Suggestions that were observed and granted let everything pass."""
    async with local_cluster(replicas=1, settings=SETTINGS) as cluster:
        namesrv = cluster.namesrv_addr
        await prepare(namesrv, mode="observe")
        async with Admin(namesrv, secret=WORD) as admin:
            await admin.users.create("new", PASSWORD)

            async def work() -> None:
                async with (
                    Producer(namesrv, user="new", secret=PASSWORD) as producer,
                    PopConsumer(namesrv, "New", {TOPIC: "*"}, user="new", secret=PASSWORD) as pop,
                ):
                    await producer.send(Message(TOPIC, b""), timeout_s=5)
                    found = await pop.poll(timeout_s=1)
                    assert found
                    await pop.ack(found[0])

            await work()
            wanted = await admin.rights.suggest()
            assert {(each.resource, each.actions) for each in wanted if each.user == "new"} == {
                ("Topic:Orders", ("Pub", "Sub")),
                ("Group:New", ("Sub",)),
            }
            for each in wanted:
                await admin.rights.grant(each.user, [each.resource], each.actions)
            await admin.settings.update_broker_config("authorizationMode", "enforce")
            await work()


async def test_what_a_leader_has_observed_is_suggested_when_another_one_leads(
    autojump_clock: MockClock,
) -> None:
    """Each member knows its own part; and senders that no right helps are told, too."""
    async with local_cluster(replicas=3, settings=SETTINGS) as cluster:
        namesrv = cluster.namesrv_addr
        await prepare(namesrv, mode="observe")
        async with Admin(namesrv, secret=WORD) as admin:
            for who in ({"user": "reader", "secret": PASSWORD}, {}):
                async with Producer(namesrv, **who) as producer:
                    await producer.send(Message(TOPIC, b""), timeout_s=5)
            await admin.raft.transfer_leader((await admin.brokers.list())[0].broker_name)

            (wanted,) = await admin.rights.suggest()
            assert (wanted.user, wanted.resource, wanted.actions) == (
                *("reader", f"Topic:{TOPIC}", ("Pub",)),
            )
            (unknown,) = await admin.rights.strangers()
            assert (unknown.user, unknown.reason) == ("", "username cannot be null.")
            assert unknown.requests
            assert admin.left_out == ()


@pytest.mark.parametrize("way", [1, -1])
async def test_clocks_at_the_edge_of_what_signatures_take(
    way: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second within, all is served; a second beyond, each send is refused by name, is not
    stored, and the next one is served on the same connection once the clock is right again."""
    apart_s = 0.0

    def clock_ms() -> int:
        return unix_ms() + round(1000 * apart_s)

    monkeypatch.setattr(credentials, "unix_ms", clock_ms)
    async with local_cluster(replicas=1, settings=SETTINGS) as cluster:
        namesrv = cluster.namesrv_addr
        await prepare(namesrv)
        async with (
            Producer(namesrv, user="sender", secret=PASSWORD) as producer,
            Admin(namesrv, user="root", secret=PASSWORD) as admin,
        ):
            for seconds in (0.0, STAMP_AGE_S - 1, STAMP_AGE_S + 1, 0.0):
                apart_s = way * seconds
                if seconds <= STAMP_AGE_S:
                    await producer.send(Message(TOPIC, b"taken"), timeout_s=5)
                    continue
                with pytest.raises(ClientError, match="look at the clocks") as caught:
                    await producer.send(Message(TOPIC, b"refused"), timeout_s=5)
                assert not isinstance(caught.value, SendUnknown)
                assert "signed 61 s ago or ahead" in str(caught.value)
            status = await admin.topics.status(TOPIC)
            assert sum(queue.max_offset for queue in status.queues) == 3


def test_the_smallest_policies() -> None:
    """A need with a choice adds nothing where another need has chosen an action."""

    def need(name: str, *actions: str, user: str = "u") -> ObservedNeed:
        return ObservedNeed(user, "Topic", name, list(actions), 2)

    found = suggested(
        [
            need("a", "Get", "Sub"),
            need("a", "Sub"),
            need("b", "Sub", "Get"),
            need("c", "Pub", user=""),
        ]
    )
    assert [(each.resource, each.actions, each.requests) for each in found] == [
        ("Topic:a", ("Sub",), 4),
        ("Topic:b", ("Sub",), 2),
    ]


def test_credentials_that_can_not_be() -> None:
    """Wrong credentials are refused where they are given, and shown without a secret."""
    with pytest.raises(BadInput, match="without a secret"):
        Producer(user="u")
    with pytest.raises(BadInput, match="taken by the cluster"):
        Consumer(group="g", subscriptions={"T": "*"}, user="dledger-cluster", secret=WORD)
    assert Credentials.of(None, None) is None
    assert repr(Credentials.of("u", PASSWORD)) == "<Credentials of u>"


def test_commands_and_blocking_faces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands go through the whole life of a user, with no password among their arguments."""
    with local_cluster_in_thread(replicas=1, settings=SETTINGS) as cluster:
        secret_file, password_file = tmp_path / "cluster.secret", tmp_path / "password"
        for file, text in ((secret_file, WORD), (password_file, PASSWORD)):
            file.write_text(text + "\n")
            file.chmod(0o600)

        def run(line: str, *by: str) -> object:
            common = ["-n", cluster.namesrv_addr, "-o", "json", *by]
            with suppress(SystemExit):
                main([*line.split(), *common])
            printed = capsys.readouterr()
            assert printed.err == "", line
            assert PASSWORD not in printed.out
            return json.loads(printed.out)["result"] if printed.out else None

        cluster_secret = ("--secret-file", str(secret_file))
        monkeypatch.setenv("DLEDGER_NEW_PASSWORD", PASSWORD)
        run("createUser -u root -t Super --dry-run", *cluster_secret)
        assert run("listUser", *cluster_secret) == []
        run("createUser -u root -t Super", *cluster_secret)
        monkeypatch.delenv("DLEDGER_NEW_PASSWORD")
        run("updateBrokerConfig -k authorizationMode -v enforce", *cluster_secret)
        root = ("--user", "root", "--password-file", str(password_file))
        run(f"createUser -u ann --new-password-file {password_file}", *root)
        run("createAcl -s User:ann -r Topic:Orders,Group:g -a Pub,Sub -i 127.0.0.1", *root)
        run("updateTopic -t Orders", *root)
        monkeypatch.setenv("DLEDGER_PASSWORD", PASSWORD)
        run("sendMessage -t Orders -p hello", "--user", "ann")
        with blocking.Producer(cluster.namesrv_addr, user="ann", secret=PASSWORD) as producer:
            producer.send(Message("Orders", b"again"))
        granted = run("getAcl -s ann", *root)
        assert isinstance(granted, list)
        assert [each["resource"] for each in granted] == ["Topic:Orders", "Group:g"]
        explained = run("aclExplain -u ann -r Topic:Orders -a Pub", *root)
        assert isinstance(explained, list)
        assert explained[0]["allowed"]
        run("deleteAcl -s ann -r Topic:Orders", *root)
        run("updateUser -u ann -s disable --require-fresh true", *root)
        run("deleteUser -u ann", *root)
