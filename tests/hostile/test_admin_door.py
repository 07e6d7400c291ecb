"""Administration at a broker's client port: who is served, and who is refused.

Served are its own machine, named addresses, and clients with the cluster's secret; whatever else a
request says of itself, it is refused.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from replicas import Group, group
from trio.testing import MockClock

from dledger.errors import ConfigError, ConnectFailed, RemotingError
from dledger.net import connect_peer
from dledger.net.proving import Prover
from dledger.net.serving import Right
from dledger.remoting.bodies import TopicConfig
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.trust.policies import Entry
from dledger.trust.signatures import Key
from dledger.trust.signing import BROKER_ID, TAG_FIELD, broker_door
from dledger.trust.users import User
from dledger.trust.wrapping import Wrapping
from mqbroker.config import BrokerConfig
from mqbroker.requests.door import FORWARDED_ADMIN, FORWARDED_BY, FORWARDED_USER
from mqbroker.testing import memory_broker
from mqbroker.testing.requests import TOPIC, ask, send_request, topic_request
from mqclient.admin.requests import AdminRequests

ADMINISTRATION = {
    "ADD_MEMBER",
    *("CREATE_USER", "UPDATE_USER", "DELETE_USER", "GET_USER", "LIST_USER"),
    *("CREATE_ACL", "UPDATE_ACL", "DELETE_ACL", "GET_ACL", "LIST_ACL", "LIST_OBSERVED"),
    "LIST_AUDITED",
    "CLEAN_EXPIRED_CONSUMEQUEUE",
    "CLEAN_UNUSED_TOPIC",
    "CLONE_GROUP_OFFSET",
    "CONSUME_MESSAGE_DIRECTLY",
    "DELETE_EXPIRED_COMMITLOG",
    "DELETE_SUBSCRIPTIONGROUP",
    "DELETE_TOPIC_IN_BROKER",
    "EXPORT_REPLICA",
    "INVOKE_BROKER_TO_RESET_OFFSET",
    "REMOVE_MEMBER",
    "SET_MESSAGE_REQUEST_MODE",
    "TRANSFER_LEADER",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST",
    "UPDATE_BROKER_CONFIG",
}
"""Codes of administrators; a new one has its line here, and in docs/explanation/security.md."""
FAR = "10.0.0.9"
WORD = "the word of this cluster"
OWN = "DefaultCluster", "broker-a"
CLAIMS: list[dict[str, ExtValue]] = [
    {},
    {FORWARDED_BY: "n1"},
    {FORWARDED_BY: "n1", FORWARDED_ADMIN: "true"},
    {TAG_FIELD: "00" * 16},
    {TAG_FIELD: "00" * 16, FORWARDED_BY: "n1", FORWARDED_ADMIN: True},
]


def test_the_page_about_security_has_each_code_of_administration() -> None:
    """The page has the number of each code of administration, or a range with it."""
    page = (Path(__file__).parents[2] / "docs" / "explanation" / "security.md").read_text()
    section = page.partition("## Who may administrate a broker")[2].partition("\n## ")[0]
    codes = re.findall(r"^\| ([^|]*[0-9][^|]*) \|", section, re.MULTILINE)
    ranges = re.findall(r"(\d+)(?: to (\d+))?", " ".join(codes))
    named = {code for first, last in ranges for code in range(int(first), int(last or first) + 1)}

    assert {name for name in ADMINISTRATION if RequestCode[name] not in named} == set()


@pytest.mark.parametrize("secret", ["", WORD])
@pytest.mark.parametrize("claim", CLAIMS)
async def test_every_code_from_afar(
    secret: str, claim: dict[str, ExtValue], tmp_path: Path, mock_clock: MockClock
) -> None:
    """An administrator's code is refused before it is read; other codes don't look at addresses."""
    async with group(tmp_path, d_leger_secret=secret) as found:
        before = found.machine.applied_index
        refused = set()
        for code, served in sorted(found.broker.handler.table.items()):
            stranger = found.connect(FAR)
            answer = await stranger.tell(Command(code, dict(claim)))
            if answer is not None and answer.code == ResponseCode.NO_PERMISSION:
                assert "may not" in str(answer.remark) or TAG_FIELD in claim
                refused.add(RequestCode(code).name)
            assert served.right in Right
            stranger.close()
        assert refused == ADMINISTRATION
        assert found.machine.applied_index == before
        await found.serves()


@pytest.mark.parametrize(
    ("setting", "host", "lets_in"),
    [
        ("loopback", "127.0.0.1", True),
        ("loopback", "::1", True),
        ("loopback", "::ffff:127.0.0.1", True),
        ("loopback", FAR, False),
        ("10.0.0.0/8", FAR, True),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("10.0.0.8, 10.0.0.10", FAR, False),
        ("*", FAR, True),
        ("", "127.0.0.1", False),
    ],
)
async def test_the_setting_decides(
    setting: str, host: str, lets_in: bool, tmp_path: Path, mock_clock: MockClock
) -> None:
    """The setting names addresses, networks, loopback, everybody or nobody."""
    async with group(tmp_path, admin_addresses=setting) as found:
        answer = await found.connect(host).ask(Command(RequestCode.CLEAN_UNUSED_TOPIC))
        assert (answer.code == ResponseCode.SUCCESS) is lets_in


async def test_whoever_may_send_may_make_a_topic_and_not_change_one(found: Group) -> None:
    """A stranger may make a topic as a send would, and not change one."""
    far, near = found.connect(FAR), found.connect()
    for request in (*[topic_request("Made", 4)] * 2, send_request(b"x", b="AutoMade")):
        await far.do(request)
    assert (await far.ask(topic_request("Made", 8))).code == ResponseCode.NO_PERMISSION
    made = found.machine.topics.get("Made")
    assert made is not None
    assert made.read_queue_nums == 4
    await near.do(topic_request("Made", 8))


async def test_where_sends_make_no_topics_strangers_make_none(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    """A topic is an administrator's to make with autoCreateTopicEnable = false."""
    async with group(tmp_path, auto_create_topic_enable=False) as found:
        answer = await found.connect(FAR).ask(topic_request("Made", 4))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert found.machine.topics.get("Made") is None


# -- with the secret ---------------------------------------------------------------------------


def config(
    admin_addresses: str = FAR, clients: str = "n0-127.0.0.1:10911;n1-127.0.0.1:10912"
) -> BrokerConfig:
    """A broker's config, in which loopback has no rights by default."""
    return BrokerConfig(
        d_leger_secret=WORD,
        admin_addresses=admin_addresses,
        d_leger_peers="n0-127.0.0.1:1;n1-127.0.0.1:2",
        group_client_addrs=clients,
    )


async def test_a_tool_that_proves_the_secret_is_let_in(tmp_path: Path) -> None:
    """A tool that proves the secret is served, each request with its own tag, sent once."""
    clean = Command(RequestCode.CLEAN_UNUSED_TOPIC)
    async with memory_broker(tmp_path, config()) as broker:
        async with connect_peer("127.0.0.1", broker.port) as tool:
            assert (await tool.request(clean, 5)).code == ResponseCode.NO_PERMISSION
            prover = Prover(WORD.encode(), *OWN, "tool")
            signing = await prover.prove(tool, broker_door(*OWN), BROKER_ID, 5)
            assert signing is not None
            for _ in range(2):
                signed = signing.sign(Command(RequestCode.CLEAN_UNUSED_TOPIC))
                assert (await tool.request(signed, 5)).code == ResponseCode.SUCCESS
            again = Command(signed.code, signed.ext)
            with suppress(RemotingError):  # the refusal, or the end of the connection
                assert (await tool.request(again, 5)).code == ResponseCode.NO_PERMISSION
            with pytest.raises(RemotingError):
                await tool.request(Command(RequestCode.GROUP_INFO), 5)
        async with connect_peer("127.0.0.1", broker.port) as tool:
            with pytest.raises(ConnectFailed, match="refused this end's proof"):
                await Prover(b"another word here", *OWN, "tool").prove(
                    tool, broker_door(*OWN), BROKER_ID, 5
                )
            assert (await tool.request(clean, 5)).code == ResponseCode.NO_PERMISSION


async def test_our_tools_prove_where_they_are_refused_otherwise(tmp_path: Path) -> None:
    """Tools with the secret's file are served; another secret is an error, and nothing is done."""
    code = RequestCode.CLEAN_UNUSED_TOPIC
    async with memory_broker(tmp_path, config()) as broker:
        address = f"127.0.0.1:{broker.port}"
        for secret, expected in ((b"", ResponseCode.NO_PERMISSION), (WORD.encode(), 0)):
            async with AdminRequests(address, 5, secret) as tool:
                assert (await tool.ask(address, code)).code == expected
                assert (await tool.ask(address, RequestCode.GROUP_INFO)).code == 0
        async with AdminRequests(address, 5, b"another word here") as tool:
            with pytest.raises(ConnectFailed, match="refused this end's proof"):
                await tool.ask(address, code)
    async with memory_broker(tmp_path / "open", BrokerConfig(admin_addresses=FAR)) as broker:
        address = f"127.0.0.1:{broker.port}"
        async with AdminRequests(address, 5, WORD.encode()) as tool:
            assert (await tool.ask(address, code)).code == ResponseCode.NO_PERMISSION


async def test_a_proof_for_another_group_is_none_for_this(tmp_path: Path) -> None:
    """The secret is the cluster's, and what was proven is what the connection speaks for."""
    other = "DefaultCluster", "broker-b"
    async with (
        memory_broker(tmp_path, config()) as broker,
        connect_peer("127.0.0.1", broker.port) as tool,
    ):
        prover = Prover(WORD.encode(), *other, "tool")
        signing = await prover.prove(tool, broker_door(*other), BROKER_ID, 5)
        assert signing is not None
        signed = signing.sign(Command(RequestCode.CLEAN_UNUSED_TOPIC))
        assert (await tool.request(signed, 5)).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize("is_admin", [True, False])
async def test_a_follower_passes_on_no_more_than_it_was_asked_by(
    is_admin: bool, tmp_path: Path
) -> None:
    """A follower proves that it passes an administrator's request on.

    A stranger's is passed on as that, though the follower's address be an administrator's.
    """
    of_follower = "127.0.0.1" if is_admin else FAR
    async with memory_broker(tmp_path / "n1", config("127.0.0.1")) as leader:
        clients = f"n0-127.0.0.1:10911;n1-127.0.0.1:{leader.port}"
        follows = config(of_follower, clients)
        async with (
            memory_broker(tmp_path / "n0", follows) as follower,
            connect_peer("127.0.0.1", follower.port) as tool,
        ):
            follower.ledger.follow("n1")
            for queues, allowed in ((4, True), (8, is_admin)):
                answer = await tool.request(topic_request(TOPIC, queues), 5)
                assert (answer.code == ResponseCode.SUCCESS) is allowed, answer.remark
            gone = await ask(tool, RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
            assert (gone.code == ResponseCode.SUCCESS) is is_admin
            assert (leader.machine.topics.get(TOPIC) is None) is is_admin


@pytest.mark.parametrize(("right", "is_done"), [("Update", True), ("Get", False)])
async def test_a_follower_passes_on_whose_request_it_is(
    right: str, is_done: bool, tmp_path: Path
) -> None:
    """A follower verifies the signature, and the leader judges the user; no claim is a proof."""
    users = Wrapping(WORD.encode())
    entry = Entry("Custom", f"Topic:{TOPIC}", (right,), ("127.0.0.1",), "Allow")
    user = User("u", users.wrap("u", "its password"), entries=(entry,))
    enforcing = msgspec.structs.replace(config("*"), authorization_mode="enforce")
    async with memory_broker(tmp_path / "n1", enforcing) as leader:
        clients = f"n0-127.0.0.1:10911;n1-127.0.0.1:{leader.port}"
        follows = msgspec.structs.replace(enforcing, group_client_addrs=clients)
        async with (
            memory_broker(tmp_path / "n0", follows) as follower,
            connect_peer("127.0.0.1", follower.port) as tool,
            connect_peer("127.0.0.1", leader.port) as directly,
        ):
            for broker in (leader, follower):
                broker.machine.users.put(user)
            leader.machine.topics.put([TopicConfig(TOPIC, 4, 4)], 1, 1, 0)
            follower.ledger.follow("n1")
            request = topic_request(TOPIC, 8)
            Key("its password").sign_as_stock(request, "u")
            answer = await tool.request(request, 5)
            assert (answer.code == ResponseCode.SUCCESS) is is_done, answer.remark
            topic = leader.machine.topics.get(TOPIC)
            assert topic is not None
            assert (topic.read_queue_nums == 8) is is_done
            for claim in ({}, {FORWARDED_ADMIN: True}, {TAG_FIELD: "00" * 16}):
                forged = topic_request(TOPIC, 2)
                forged.ext = {**forged.ext, FORWARDED_BY: "n0", FORWARDED_USER: "u", **claim}
                answer = await directly.request(forged, 5)
                assert answer.code == ResponseCode.NO_PERMISSION


def test_an_address_that_is_none_is_no_setting() -> None:
    """A wrong address in the setting is found when the broker starts."""
    with pytest.raises(ConfigError, match="adminAddresses"):
        BrokerConfig(admin_addresses="10.0.0.300").check()
