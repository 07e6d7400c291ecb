"""Pulls with a SQL92 filter: messages and next offset, when they wake, which are refused."""

from __future__ import annotations

import pytest
import trio

from dledger.net import Peer
from dledger.remoting.bodies import (
    CheckClientConfigBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from mqbroker import limits
from mqbroker.testing.requests import GROUP, TOPIC, ask, make_topic, records, send_request
from mqbroker.testing.requests import pull_request as any_pull

Code = ResponseCode
SUSPEND, SUBSCRIPTION = 2, 4
WANTED = "amount > 10 AND region = 'north'"


@pytest.fixture
async def peer(peer: Peer) -> Peer:
    """A client of a broker that has the topic."""
    await make_topic(peer)
    return peer


async def send(peer: Peer, amount: int, region: str = "north") -> None:
    """Send one order to queue 1."""
    properties = f"amount\x01{amount}\x02region\x01{region}\x02"
    assert (await peer.request(send_request(b"%d" % amount, i=properties), 5)).code == Code.SUCCESS


def pull_request(offset: int, flags: int = SUBSCRIPTION, **changed: ExtValue) -> Command:
    """A pull of queue 1 that brings the expression along."""
    sql: dict[str, ExtValue] = {"subscription": WANTED, "expressionType": "SQL92"}
    return any_pull(1, offset, flags, **sql | changed)


async def beat(peer: Peer, subscription: SubscriptionData) -> None:
    """Send the heartbeat of a consumer with this subscription."""
    consumer = ConsumerData(GROUP, subscription_data_set=[subscription])
    await ask(peer, RequestCode.HEART_BEAT, encode_body(HeartbeatData("c1", [], [consumer])))


async def test_a_pull_brings_what_the_expression_is_true_for(peer: Peer) -> None:
    """A pull brings the messages for which the expression is true, and goes on behind all."""
    for amount, region in ((5, "north"), (20, "north"), (30, "south"), (40, "north")):
        await send(peer, amount, region)
    found = await peer.request(pull_request(0), 5)
    assert [bytes(record.body) for record in records(found)] == [b"20", b"40"]
    assert found.ext["nextBeginOffset"] == 4
    one = await peer.request(pull_request(0, maxMsgNums=1), 5)
    assert [bytes(record.body) for record in records(one)] == [b"20"]
    assert one.ext["nextBeginOffset"] == 3
    none = await peer.request(pull_request(2, subscription="amount > 99"), 5)
    assert (none.code, none.ext["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, 4)


async def test_one_pull_reads_a_bounded_number_of_messages(peer: Peer) -> None:
    """The client pulls again at once, from where this one ended."""
    for _ in range(limits.SQL_MESSAGES_SCANNED_MAX):
        await send(peer, 1)
    await send(peer, 20)
    first = await peer.request(pull_request(0), 5)
    assert first.code == Code.PULL_RETRY_IMMEDIATELY
    assert first.ext["nextBeginOffset"] == limits.SQL_MESSAGES_SCANNED_MAX
    then = await peer.request(pull_request(limits.SQL_MESSAGES_SCANNED_MAX), 5)
    assert [bytes(record.body) for record in records(then)] == [b"20"]


async def test_the_heartbeats_expression_filters(peer: Peer) -> None:
    """The heartbeat's expression filters, and a newer one must be known first."""
    for amount in (5, 20):
        await send(peer, amount)
    subscription = SubscriptionData(TOPIC, WANTED, sub_version=7, expression_type="SQL92")
    await beat(peer, subscription)
    found = await peer.request(pull_request(0, 0, subVersion=7), 5)
    assert [bytes(record.body) for record in records(found)] == [b"20"]
    newer = await peer.request(pull_request(0, 0, subVersion=8), 5)
    assert newer.code == Code.SUBSCRIPTION_NOT_LATEST


async def test_a_held_pull_wakes_with_the_messages_that_come(peer: Peer) -> None:
    """Wanted ones are its answer; others send the client on, behind them."""
    for amount, code in ((20, Code.SUCCESS), (5, Code.PULL_RETRY_IMMEDIATELY)):
        async with trio.open_nursery() as nursery:
            answers: list[Command] = []

            async def pull() -> None:
                offset = 0 if amount == 20 else 1  # noqa: B023 -- ends with the turn
                request = pull_request(offset, SUBSCRIPTION | SUSPEND)
                answers.append(await peer.request(request, 5))  # noqa: B023 -- as above

            nursery.start_soon(pull)
            await trio.sleep(0.05)
            assert not answers
            await send(peer, amount)
        assert answers[0].code == code


async def test_an_expression_is_checked_when_a_consumer_starts(peer: Peer) -> None:
    """CHECK_CLIENT_CONFIG refuses an expression with code 23 and the mistake's place."""
    for expression, code in ((WANTED, Code.SUCCESS), ("a >", Code.SUBSCRIPTION_PARSE_FAILED)):
        subscription = SubscriptionData(TOPIC, expression, expression_type="SQL92")
        body = encode_body(CheckClientConfigBody("c1", GROUP, subscription))
        answer = await ask(peer, RequestCode.CHECK_CLIENT_CONFIG, body)
        assert answer.code == code
        assert code == Code.SUCCESS or "character 3" in (answer.remark or "")
