"""Answers to codes 28 and 315 can be read by apache/rocketmq-exporter."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dledger.net import Peer
from dledger.remoting.bodies import BrokerStatsData, KVTable, decode_body
from dledger.remoting.codes import RequestCode
from mqbroker.testing import served
from mqbroker.testing.requests import GROUP, TOPIC, ask, make_topic, pull_request, send_request

WHOLE = (
    *("msgPutTotalTodayNow", "msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning"),
    *("msgGetTotalTodayNow", "msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning"),
    *("sendThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills"),
    *("pullThreadPoolQueueHeadWaitTimeMills", "sendThreadPoolQueueSize", "pullThreadPoolQueueSize"),
    *("queryThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity"),
    *("queryThreadPoolQueueCapacity", "bootTimestamp", "commitLogMinOffset", "commitLogMaxOffset"),
    *("brokerVersion", "pageCacheLockTimeMills", "putMessageTimesTotal", "putMessageSizeTotal"),
    *("startAcceptSendRequestTimeStamp", "earliestMessageTimeStamp", "dispatchBehindBytes"),
    *("getMessageEntireTimeMax", "putMessageEntireTimeMax", "dispatchMaxBuffer"),
    "remainTransientStoreBufferNumbs",
)
DECIMAL = ("consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize")
TEXT = ("runtime", "brokerVersionDesc")
TRIPLES = ("putTps", "getMissTps", "getTransferredTps", "getTotalTps", "getFoundTps")
CAPACITY = re.compile(r"Total : [\d.]+ \w+, Free : [\d.]+ \w+\.")
SPANS = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s"),
    *("2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)


async def test_the_exporter_can_read_a_brokers_state(tmp_path: Path) -> None:
    """The exporter needs all these rows in their form, or it has no figures of the broker."""
    async with served(tmp_path) as (_, peer):
        await make_topic(peer)
        await peer.request(send_request(b"x"), 30)
        answer = await ask(peer, RequestCode.GET_BROKER_RUNTIME_INFO)
        told = decode_body(KVTable, answer.payload).table

    assert [name for name in (*WHOLE, *DECIMAL, *TEXT, *TRIPLES) if name not in told] == []
    assert [name for name in WHOLE if not told[name].lstrip("-").isdigit()] == []
    assert [name for name in DECIMAL if float(told[name]) < 0] == []
    assert [name for name in TRIPLES if len([*map(float, told[name].split(" "))]) != 3] == []
    assert float(told["remainHowManyDataToFlush"].split(" ")[0]) >= 0
    assert CAPACITY.fullmatch(told["commitLogDirCapacity"])
    spans = [each.rpartition(":") for each in told["putMessageDistributeTime"].split(" ")]
    assert tuple(name.strip("[]") for name, _, _ in spans) == SPANS
    assert all(count.isdigit() for _, _, count in spans)


@pytest.mark.parametrize(
    ("figure", "key"),
    [
        ("BROKER_PUT_NUMS", "DefaultCluster"),
        ("BROKER_GET_NUMS", "DefaultCluster"),
        ("TOPIC_PUT_NUMS", TOPIC),
        ("TOPIC_PUT_SIZE", TOPIC),
        ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}"),
        ("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}"),
    ],
)
async def test_the_exporter_can_read_traffic(peer: Peer, figure: str, key: str) -> None:
    """The exporter reads each figure of traffic that it asks for."""
    await make_topic(peer)
    await peer.request(send_request(b"x"), 30)
    await peer.request(pull_request(0), 30)
    await peer.request(pull_request(1), 30)
    code = RequestCode.VIEW_BROKER_STATS_DATA
    answer = await ask(peer, code, statsName=figure, statsKey=key)
    assert answer.code == 0, answer.remark
    assert decode_body(BrokerStatsData, answer.payload).stats_minute is not None
