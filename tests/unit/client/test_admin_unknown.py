"""Admin's answers about topics and groups that don't exist, or have nothing yet.

The broker is the real one, on a ledger in memory; the name server shows what it has.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from dledger.net import Connection, Handler, serve_remoting
from dledger.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    SubscriptionGroupConfig,
    TopicList,
    encode_body,
)
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from mqbroker.testing.memory import MemoryBroker, served
from mqbroker.testing.requests import ask, heartbeat, make_topic
from mqclient.admin import Admin, UnknownTarget
from mqclient.commands.mqadmin import main


class NameServer(Handler):
    """Knows one broker group, and the topics that it has at the moment."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker

    def __call__(self, request: Command, connection: Connection) -> Command:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            group = BrokerData(
                "DefaultCluster", "broker-a", {0: f"{self.broker.host}:{self.broker.port}"}
            )
            info = ClusterInfo({"broker-a": group}, {"DefaultCluster": ["broker-a"]})
            return request.reply(body=encode_body(info))
        names = sorted(topic.topic_name for topic in self.broker.machine.topics)
        return request.reply(body=encode_body(TopicList(names)))


@asynccontextmanager
async def administered(directory: Path) -> AsyncIterator[Admin]:
    """A cluster with a topic "Orders" and a group "C", which has a member and no offset."""
    async with trio.open_nursery() as nursery, served(directory) as (broker, peer):
        await make_topic(peer)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        port = await nursery.start(serve_remoting, NameServer(broker), "127.0.0.1", 0)
        async with Admin(f"127.0.0.1:{port}") as admin:
            yield admin
        nursery.cancel_scope.cancel()


async def test_every_group_that_is_listed_can_be_looked_at(tmp_path: Path) -> None:
    """A group with a config alone exists, and has read nothing."""
    async with administered(tmp_path) as admin:
        await admin.groups.update("Quiet")
        for group in await admin.groups.list():
            assert await admin.groups.progress(group.group) == group
        quiet = await admin.groups.progress("Quiet")
        assert (quiet.members, quiet.lag, quiet.queues) == (0, 0, ())
        with pytest.raises(UnknownTarget, match="there is no consumer group 'Nobody'"):
            await admin.groups.progress("Nobody")
        with pytest.raises(UnknownTarget, match="there is no consumer group 'Nobody'"):
            await admin.groups.progress("Nobody", "Orders")


async def test_what_is_not_there_is_not_deleted(tmp_path: Path) -> None:
    """Deleting an unknown topic or group is an error: its name may be mistyped."""
    async with administered(tmp_path) as admin:
        with pytest.raises(UnknownTarget, match="there is no topic 'Nope'"):
            await admin.topics.delete("Nope")
        with pytest.raises(UnknownTarget, match="there is no consumer group 'Nobody'"):
            await admin.groups.delete("Nobody")
        assert await admin.topics.delete("Orders") == ("broker-a",)
        with pytest.raises(UnknownTarget, match="there is no topic 'Orders'"):
            await admin.topics.delete("Orders")
        await admin.groups.update("Quiet")
        assert await admin.groups.delete("Quiet") == ("broker-a",)
        with pytest.raises(UnknownTarget, match="there is no consumer group 'Quiet'"):
            await admin.groups.delete("Quiet")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("queryMsgByOffset -o 0", "queryMsgByOffset needs -t (--topic)"),
        ("queryMsgByOffset -t T -b b -i 0", "queryMsgByOffset needs --offset"),
        ("queryMsgByOffset -t T -b b -i 0 --offset 0 -o 0", "The queue offset is --offset here"),
        ("sendMessage -t T", "sendMessage needs -p (--body)"),
        ("queryMsgById -i xyz", "-i: 'xyz' is not an offset message id"),
        ("queryMsgById -i 7F00", "a unique key needs its topic, too (-t)"),
    ],
)
def test_a_wrong_command_line_is_told_in_the_names_of_the_docs(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong command line has status 2, since no server was asked, and an error in the docs'
    names.
    """
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def _config(group: str) -> SubscriptionGroupConfig:
    return SubscriptionGroupConfig(group_name=group)
