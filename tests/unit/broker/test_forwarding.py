"""Tools' changes that come to a follower reach the leader, once, or are refused with the reason."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dledger.net import Peer, connect_peer
from dledger.remoting.bodies import (
    CreateTopicListBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    TopicConfig,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from mqbroker.config import BrokerConfig
from mqbroker.testing import MemoryBroker, memory_broker, served
from mqbroker.testing.requests import ask, make_topic

Code = ResponseCode


def config(leader_port: int) -> BrokerConfig:
    """Config of n0, which follows n1."""
    return BrokerConfig(
        d_leger_peers="n0-127.0.0.1:1;n1-127.0.0.1:2",
        group_client_addrs=f"n0-127.0.0.1:10911;n1-127.0.0.1:{leader_port}",
    )


@asynccontextmanager
async def pair(directory: Path) -> AsyncIterator[tuple[MemoryBroker, MemoryBroker, Peer]]:
    """(leader, follower, a tool that is connected to the follower)."""
    async with (
        memory_broker(directory / "n1") as leader,
        memory_broker(directory / "n0", config(leader.port)) as follower,
        connect_peer("127.0.0.1", follower.port) as tool,
    ):
        follower.ledger.follow("n1")
        yield leader, follower, tool


async def test_a_follower_passes_changes_of_topics_and_groups_on(tmp_path: Path) -> None:
    """A follower passes changes on, and answers with the leader's answer."""
    async with pair(tmp_path) as (leader, follower, tool):
        assert (await make_topic(tool)).code == Code.SUCCESS
        assert leader.machine.topics.get("Orders") is not None
        assert follower.machine.topics.get("Orders") is None
        group = encode_body(SubscriptionGroupConfig("G", retry_max_times=3))
        made = await ask(tool, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group)
        assert made.code == Code.SUCCESS
        config = leader.machine.groups.get("G")
        assert config is not None
        assert config.retry_max_times == 3
        gone = await ask(tool, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="G")
        assert (gone.code, leader.machine.groups.get("G")) == (Code.SUCCESS, None)


async def test_a_topic_can_be_deleted_whichever_member_is_asked_first(tmp_path: Path) -> None:
    """A deleted topic is gone at all members, which tools of 5.x tell in any order."""
    async with pair(tmp_path) as (leader, _, tool):
        await make_topic(tool)
        for _ in range(2):
            gone = await ask(tool, RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
            assert (gone.code, leader.machine.topics.get("Orders")) == (Code.SUCCESS, None)
        refused = await ask(tool, RequestCode.DELETE_TOPIC_IN_BROKER, topic="TBW102")
        assert refused.code == Code.SYSTEM_ERROR
        assert "belongs to the broker" in (refused.remark or "")


async def test_lists_are_made_at_once(tmp_path: Path) -> None:
    """5.x's updateTopicList and updateSubGroupList make all names, or none if one is bad."""
    async with served(tmp_path) as (broker, tool):
        code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        topics = CreateTopicListBody([TopicConfig("A"), TopicConfig("B")])
        assert (await ask(tool, code, encode_body(topics))).code == Code.SUCCESS
        bad = CreateTopicListBody([TopicConfig("C"), TopicConfig("no way")])
        assert (await ask(tool, code, encode_body(bad))).code == Code.SYSTEM_ERROR
        assert [broker.machine.topics.get(name) is not None for name in "ABC"] == [1, 1, 0]
        groups = SubscriptionGroupList([SubscriptionGroupConfig(name) for name in ("G", "H")])
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        assert (await ask(tool, code, encode_body(groups))).code == Code.SUCCESS
        assert {group.group_name for group in broker.machine.groups} == {"G", "H"}


async def test_two_followers_that_name_each_other_do_not_go_round_in_circles(
    tmp_path: Path,
) -> None:
    """A request that was passed on once is refused with a follower's words."""
    async with pair(tmp_path) as (leader, _, tool):
        leader.ledger.follow(None)
        refused = await make_topic(tool)
        assert refused.code == Code.SERVICE_NOT_AVAILABLE
        assert refused.remark == "not the leader; none is known"


@pytest.mark.parametrize("known", [True, False])
async def test_without_a_leader_the_refusal_says_so(tmp_path: Path, known: bool) -> None:
    """The refusal says whether no leader is known, or the known one can't be reached."""
    async with (
        memory_broker(tmp_path, config(leader_port=9)) as follower,
        connect_peer("127.0.0.1", follower.port) as tool,
    ):
        follower.ledger.follow("n1" if known else None)
        refused = await make_topic(tool)
        assert refused.code == Code.SERVICE_NOT_AVAILABLE
        words = "passed on to the leader at 127.0.0.1:9" if known else "none is known"
        assert words in (refused.remark or "")
