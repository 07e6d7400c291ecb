"""A name server that enforces rights knows the users of proven brokers, and obeys no others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy
from pathlib import Path

import trio
from test_namesrv_door import WORD, member, name_server, stranger

from dledger.limits import WRONG_PROOFS_AT_ONCE
from dledger.net import connect_peer
from dledger.remoting.codes import RequestCode as Code
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.trust.policies import Entry
from dledger.trust.signatures import OWN_SIGNATURE, STAMP, Key, Stamp
from dledger.trust.users import User, Users, encoded
from dledger.trust.wrapping import Wrapping
from dledger.world import unix_ms
from mqbroker.config import BrokerConfig
from mqbroker.registration import Registration
from mqbroker.state.control import DeleteUser, PutUser
from mqbroker.testing import memory_broker
from mqclient.connection.credentials import Credentials
from mqclient.connection.peers import PeerPool
from mqnamesrv.saved.kv_file import IN_MEMORY_ONLY

PASSWORD = "a user's password"  # noqa: S105
REFUSED = ResponseCode.NO_PERMISSION
ENTRY = {"namespace": "n", "key": "k", "value": "v"}


def user(name: str, *rights: str, **changed: object) -> User:
    """A user with rights like "Topic:* Get"."""
    entries = [
        Entry("Custom", resource, (action,), (), "Allow")
        for resource, action in (right.split() for right in rights)
    ]
    wrapped = Wrapping(WORD.encode()).wrap(name, PASSWORD)
    return User(name, wrapped, entries=tuple(entries))._replace(**changed)


def table(*users: User) -> bytes:
    """A table of users as a broker sends it."""
    told = Users()
    told.restore(users)
    return encoded(told)


@asynccontextmanager
async def client(name: str | None = None, password: str = PASSWORD) -> AsyncIterator[PeerPool]:
    """Connections that sign as a user, as the cluster, or not at all."""
    credentials = Credentials.of(name, password if name or password == WORD else None)
    async with PeerPool(credentials=credentials) as pool:
        yield pool


async def ask(pool: PeerPool, port: int, code: int, **ext: ExtValue) -> Command:
    return await pool.request(f"127.0.0.1:{port}", Command(code, ext), 5)


async def test_a_name_server_judges_by_what_leaders_have_told(tmp_path: Path) -> None:
    """Routes are open; lists have what a user may see; changes need a right on the cluster."""
    users = user("reader", "Topic:T Sub"), user("admin", "Cluster:DefaultCluster Update")
    settings = {"authorization_mode": "enforce", "admin_addresses": "*"}
    async with name_server(tmp_path, **settings) as port, member(port) as broker:
        assert (await broker.register()).code == ResponseCode.SUCCESS
        told = await broker.ask(Code.REGISTER_USERS, table(*users))
        assert told.code == ResponseCode.SUCCESS, told.remark
        async with client() as nobody:
            assert (await ask(nobody, port, Code.GET_BROKER_CLUSTER_INFO)).code == 0
            assert (await ask(nobody, port, Code.GET_ROUTEINFO_BY_TOPIC, topic="T")).code == 0
            answer = await ask(nobody, port, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert (answer.code, answer.remark) == (REFUSED, "username cannot be null.")
            assert (await ask(nobody, port, Code.PUT_KV_CONFIG, **ENTRY)).code == REFUSED
        async with client("reader") as reader:
            answer = await ask(reader, port, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
            assert json.loads(bytes(answer.payload))["topicList"] == ["T"]
            answer = await ask(reader, port, Code.PUT_KV_CONFIG, **ENTRY)
            assert "no permission to access Cluster:DefaultCluster" in str(answer.remark)
        for name, password, expected in (
            ("admin", PASSWORD, 0),
            ("admin", "another password", REFUSED),
            (None, WORD, 0),
        ):
            async with client(name, password) as pool:
                answer = await ask(pool, port, Code.PUT_KV_CONFIG, **ENTRY)
                assert answer.code == expected, (name, answer.remark)
        await broker.ask(Code.REGISTER_USERS, table(users[0]))
        async with client("admin") as gone:
            answer = await ask(gone, port, Code.PUT_KV_CONFIG, **ENTRY)
            assert answer.remark == "User:admin is not found."


async def test_users_that_a_name_server_does_not_know_yet_are_no_flood(tmp_path: Path) -> None:
    """Requests of users that are not known yet, after a start, are refused without counting.

    However many they have signed rightly, they are served once a leader has registered.
    """
    async with name_server(tmp_path, authorization_mode="enforce") as port, client("admin") as pool:
        for _ in range(WRONG_PROOFS_AT_ONCE + 1):
            answer = await ask(pool, port, Code.PUT_KV_CONFIG, **ENTRY)
            assert answer.remark == "User:admin is not found."
        async with member(port) as broker:
            assert (await broker.register()).code == ResponseCode.SUCCESS
            await broker.ask(Code.REGISTER_USERS, table(user("admin", is_super=True)))
            answer = await ask(pool, port, Code.PUT_KV_CONFIG, **ENTRY)
            assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_signed_request_is_good_for_one_connection_of_one_server(tmp_path: Path) -> None:
    """A signed request is refused again, on another connection, at another server, or changed."""
    enforce = {"authorization_mode": "enforce", "admin_addresses": "*"}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with (
        name_server(tmp_path / "a", **enforce) as port,
        name_server(tmp_path / "b", **enforce) as other,
        member(port) as broker,
        member(other) as another,
    ):
        for each in (broker, another):
            assert (await each.register()).code == ResponseCode.SUCCESS
            await each.ask(Code.REGISTER_USERS, table(user("admin", is_super=True)))

        async def put(
            at: int, captured: Command | None = None, **changed: ExtValue
        ) -> tuple[Command, Command]:
            """Send over a new connection, signed there unless captured; request and answer."""
            async with connect_peer("127.0.0.1", at, 5) as peer:
                nonce = str((await peer.request(Command(Code.SIGN_ON), 5)).ext["nonce"])
                request = Command(Code.PUT_KV_CONFIG, dict(ENTRY)) if captured is None else captured
                if captured is None:
                    Key(PASSWORD).sign(request, "admin", Stamp(nonce, 1, unix_ms()))
                sent = Command(request.code, {**request.ext, **changed}, request.body)
                answer = await peer.request(copy(sent), 5)
                if captured is None and answer.code == ResponseCode.SUCCESS:
                    again = await peer.request(copy(sent), 5)
                    assert again.code == REFUSED
                    assert "sent before" in str(again.remark)
                return sent, answer

        sent, answer = await put(port)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        for at in (port, other):
            _, relayed = await put(at, sent)
            assert relayed.code == REFUSED
            assert "another connection" in str(relayed.remark)
        for field in (OWN_SIGNATURE, STAMP, "AccessKey", "value"):
            for kept in (0, -1):
                cut = {field: str(sent.ext[field])[:kept]}
                _, refused = await put(other, None, **cut)
                assert refused.code == REFUSED, (field, kept)
        async with client("admin") as pool:
            answer = await ask(pool, other, Code.GET_KV_CONFIG, namespace="n", key="k")
            assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_users_are_taken_from_proven_brokers_alone(tmp_path: Path) -> None:
    """A stranger can make nobody an administrator, nor can a name be another group's."""
    mine = table(user("mine", "Cluster:* All"))
    async with name_server(tmp_path, authorization_mode="enforce") as port:
        async with stranger(port) as nobody:
            assert (await nobody.ask(Code.REGISTER_USERS, mine)).code == REFUSED
        async with member(port) as broker:
            answer = await broker.ask(Code.REGISTER_USERS, mine, brokerName="broker-b")
            assert answer.code == REFUSED
        async with member(port) as broker:
            for body in (b"", b"no users", table(user("x"))[:-4]):
                assert (await broker.ask(Code.REGISTER_USERS, body)).code == 1
        async with client("mine") as pool:
            answer = await ask(pool, port, Code.PUT_KV_CONFIG, **ENTRY)
            assert answer.remark == "User:mine is not found."


async def test_enforcing_takes_a_super_user_who_could_take_it_back(tmp_path: Path) -> None:
    """Enforcing at run time needs a super user that a broker has told of."""

    async def enforce(pool: PeerPool, port: int) -> Command:
        change = Command(Code.UPDATE_NAMESRV_CONFIG, {}, b"authorizationMode=enforce")
        return await pool.request(f"127.0.0.1:{port}", change, 5)

    async with name_server(tmp_path) as port, member(port) as broker, client() as pool:
        refused = await enforce(pool, port)
        assert "no broker group has told of an enabled super user" in str(refused.remark)
        await broker.ask(Code.REGISTER_USERS, table(user("root", is_super=True)))
        assert (await enforce(pool, port)).code == ResponseCode.SUCCESS
        assert (await ask(pool, port, Code.PUT_KV_CONFIG, **ENTRY)).code == REFUSED


async def test_a_leader_tells_its_users_and_each_change(tmp_path: Path) -> None:
    """A leader sends its users when it registers, and each change of them."""
    async with name_server(tmp_path, authorization_mode="enforce") as port:
        config = BrokerConfig(
            d_leger_secret=WORD,
            namesrv_addr=f"127.0.0.1:{port}",
            group_client_addrs="n0-127.0.0.1:10911",
            d_leger_peers="n0-127.0.0.1:1",
            register_broker_heartbeat_millis=100,
        )
        async with memory_broker(tmp_path / "a", config, clock_ms=unix_ms) as broker:
            core = broker.broker.core
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Registration(core).run)

                async def until_answered(remark: str) -> None:
                    with trio.fail_after(30):
                        while True:
                            async with client("root") as pool:
                                answer = await ask(pool, port, Code.PUT_KV_CONFIG, **ENTRY)
                            if answer.remark == remark:
                                return
                            await trio.sleep(0.01)

                await until_answered("User:root is not found.")
                await core.definitions.changed(PutUser(user("root", is_super=True), 1))
                await until_answered(IN_MEMORY_ONLY)
                await core.definitions.changed(DeleteUser("root", 1))
                await until_answered("User:root is not found.")
                nursery.cancel_scope.cancel()
