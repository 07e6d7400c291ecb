"""POP with filters that hardly any message passes: each look is bounded, and the next goes on from
there.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.message import properties_encode
from dledger.remoting.record import encode_record
from mqbroker import limits
from mqbroker.requests.popping import asking
from mqbroker.testing import MemoryBroker, served
from mqbroker.testing.requests import (
    BORN_HOST,
    TIMEOUT_S,
    TOPIC,
    ask,
    commit,
    make_topic,
    records,
)

QUEUES = 4
TAG = ("b", "TAG")
SQL = ("TAGS = 'b'", "SQL92")


async def produce(peer: Peer, queue_id: int, tag: str, count: int) -> None:
    """Send messages with a tag."""
    record = encode_record(
        topic=TOPIC.encode(),
        queue_id=queue_id,
        body=b"x",
        properties=properties_encode({"TAGS": tag}),
        born_timestamp_ms=1,
        born_host=BORN_HOST,
    )
    ext: dict[str, ExtValue] = {"topic": TOPIC, "producerGroup": "P", "runs": [[queue_id, count]]}
    answer = await peer.request(Command(RequestCode.PRODUCE, ext, record * count), TIMEOUT_S)
    assert answer.code == ResponseCode.SUCCESS


async def fill(peer: Peer) -> None:
    """Very many messages that nobody wants in each queue, and one behind them that is wanted."""
    await make_topic(peer, queues=QUEUES)
    for queue_id in range(QUEUES):
        await produce(peer, queue_id, "a", 600)
    await produce(peer, 2, "b", 1)


def request(code: int, wanted: tuple[str, str], poll_ms: int = 0) -> Command:
    """A request of POP's kind, as a stock client writes it."""
    ext: dict[str, ExtValue] = {
        "consumerGroup": "C",
        "topic": TOPIC,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": str(poll_ms),
        "bornTime": "0",
        "initMode": "0",
        "exp": wanted[0],
        "expType": wanted[1],
    }
    return Command(code, ext, encoding=HeaderEncoding.JSON)


def entries(broker: MemoryBroker) -> int:
    """How many entries there are."""
    return broker.ledger.status.last_index


@pytest.mark.parametrize("first", range(QUEUES))
@pytest.mark.parametrize(("wanted", "per_look"), [(TAG, 800), (SQL, 5)], ids=["tags", "sql"])
async def test_a_pop_finds_what_lies_behind_very_many_messages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wanted: tuple[str, str],
    per_look: int,
    first: int,
) -> None:
    """A pop finds a message behind very many others; an entry keeps what each look passed."""
    monkeypatch.setattr(limits, "SQL_STEPS_MAX", 100)
    async with served(tmp_path) as (broker, peer):
        await fill(peer)
        await peer.request(request(RequestCode.NOTIFICATION, wanted), TIMEOUT_S)
        before = entries(broker)  # the group is there
        monkeypatch.setattr(asking, "_starts", itertools.count(first))
        answer = await peer.request(request(RequestCode.POP_MESSAGE, wanted), 60)
        assert [record.queue_id for record in records(answer)] == [2]
        looked_at = [601, *[600] * ((2 - first) % QUEUES)]
        assert entries(broker) - before == sum(-(-count // per_look) for count in looked_at)
        for _ in range(2):
            passed = entries(broker)
            again = await peer.request(request(RequestCode.POP_MESSAGE, wanted), 60)
            assert again.code == ResponseCode.POLLING_TIMEOUT
        assert entries(broker) <= passed + 1


async def test_a_notification_that_could_not_look_at_all_says_that_there_may_be_something(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notification that could not look says that there may be a message, so that a pop looks."""
    await fill(peer)
    asked = request(RequestCode.NOTIFICATION, ("c", "TAG"))
    assert (await peer.request(asked, TIMEOUT_S)).ext["hasMsg"] == "false"
    monkeypatch.setattr(limits, "SQL_STEPS_MAX", 100)
    assert (await peer.request(asked, TIMEOUT_S)).ext["hasMsg"] == "true"
    for _ in range(2):
        await peer.request(request(RequestCode.POP_MESSAGE, ("c", "TAG")), 60)
    assert (await peer.request(asked, TIMEOUT_S)).ext["hasMsg"] == "false"


async def test_progress_in_too_many_queues_is_refused_with_the_bound(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal says what to ask instead."""
    await make_topic(peer, queues=QUEUES)
    for queue_id in range(QUEUES):
        await commit(peer, 0, queue_id)
    told = await ask(peer, RequestCode.GET_CONSUME_STATS, consumerGroup="C")
    assert told.code == ResponseCode.SUCCESS
    monkeypatch.setattr(limits, "PROGRESS_QUEUES_MAX", QUEUES - 1)
    for code, more in (
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "C"}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False}),
    ):
        answer = await peer.request(Command(code, more), TIMEOUT_S)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "at most 3 are told at once" in (answer.remark or "")
