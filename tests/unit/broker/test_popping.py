"""POP by its requests: which messages a consumer gets, when again, and what its acks do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.receipts import write_receipt
from dledger.remoting.record import Record
from mqbroker import limits
from mqbroker.requests.popping import settling
from mqbroker.state.control import Control, encode_control
from mqbroker.state.groups.popping import SettlePopped
from mqbroker.testing import MemoryBroker, served
from mqbroker.testing.requests import (
    GROUP,
    TIMEOUT_S,
    TOPIC,
    ask,
    commit,
    heartbeat,
    make_topic,
    produce_request,
    records,
)

pytestmark = pytest.mark.usefixtures("autojump_clock")

INVISIBLE_MS = 60_000


def pop_request(
    queue_id: int = -1, count: int = 32, poll_ms: int = 0, **changed: ExtValue
) -> Command:
    """POP_MESSAGE as a stock client writes it."""
    ext: dict[str, ExtValue] = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": str(queue_id),
        "maxMsgNums": str(count),
        "invisibleTime": str(INVISIBLE_MS),
        "pollTime": str(poll_ms),
        "bornTime": "0",
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return Command(RequestCode.POP_MESSAGE, ext | changed, encoding=HeaderEncoding.JSON)


class Popped:
    """The answer to a pop."""

    def __init__(self, answer: Command) -> None:
        self.code = answer.code
        self.ext = answer.ext
        self.records = records(answer) if answer.code == ResponseCode.SUCCESS else []

    @property
    def places(self) -> list[tuple[int, int]]:
        """(queue id, queue offset) of each message."""
        return [(record.queue_id, record.queue_offset) for record in self.records]

    def receipt(self, record: Record, revive: int = 0) -> str:
        """The message's handle, as a client makes it."""
        return write_receipt(
            int(str(self.ext["popTime"])),
            int(str(self.ext["invisibleTime"])),
            "broker-a",
            record.queue_id,
            record.queue_offset,
            ordered=revive == 999,
        )


async def pop(peer: Peer, *args: int, **changed: ExtValue) -> Popped:
    """Pop, and read the answer."""
    return Popped(await peer.request(pop_request(*args, **changed), TIMEOUT_S))


def handle(record: Record, receipt: str) -> dict[str, ExtValue]:
    """The fields by which a message is named."""
    return {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": str(record.queue_id),
        "extraInfo": receipt,
        "offset": str(record.queue_offset),
    }


async def ack(peer: Peer, popped: Popped, record: Record) -> Command:
    return await ask(peer, RequestCode.ACK_MESSAGE, **handle(record, popped.receipt(record)))


async def hide(
    peer: Peer, popped: Popped, record: Record, for_ms: int, revive: int = 0, **more: ExtValue
) -> Command:
    """Change a message's invisible time."""
    fields = handle(record, popped.receipt(record, revive))
    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    return await ask(peer, code, **fields, invisibleTime=for_ms, **more)


@asynccontextmanager
async def with_messages(
    directory: Path, *runs: tuple[int, int], auto: bool = True
) -> AsyncIterator[tuple[MemoryBroker, Peer]]:
    """A broker with a group, and messages in its topic: (queue id, count)."""
    async with served(directory) as (broker, peer):
        await make_topic(peer)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        if runs:
            await peer.request(produce_request("k", runs=runs), TIMEOUT_S)
        yield broker, peer


async def test_changes_that_wait_for_an_entry_share_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes of messages share the next entry, up to a bound, and each is answered."""
    sizes = list[int]()

    def noted(change: Control) -> bytes:
        if isinstance(change, SettlePopped):
            sizes.append(len(change.changes))
        return encode_control(change)

    monkeypatch.setattr(settling, "encode_control", noted)
    monkeypatch.setattr(limits, "POP_CHANGES_PER_ENTRY_MAX", 3)
    answers = list[int]()
    async with with_messages(tmp_path, (0, 20)) as (_, peer):
        popped = await pop(peer)

        async def hide_one(number: int) -> None:
            answer = await hide(peer, popped, popped.records[number], 60_000)
            answers.append(answer.code)

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(hide_one, number)
    assert answers == [ResponseCode.SUCCESS] * 20
    assert sum(sizes) == 20
    assert max(sizes) <= 3


async def test_what_was_popped_is_hidden_until_its_time_is_over(tmp_path: Path) -> None:
    """A popped message is hidden for its invisible time, and comes again with its count."""
    async with with_messages(tmp_path, (0, 2), (3, 1)) as (broker, peer):
        first = await pop(peer)
        assert sorted(first.places) == [(0, 0), (0, 1), (3, 0)]
        assert {record.reconsume_times for record in first.records} == {0}
        assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT

        await trio.sleep(INVISIBLE_MS / 1000)
        again = await pop(peer)
        assert sorted(again.places) == sorted(first.places)
        assert {record.reconsume_times for record in again.records} == {1}
        assert {record.topic for record in again.records} == {TOPIC}
        assert int(str(again.ext["popTime"])) > int(str(first.ext["popTime"]))
        assert broker.machine.offsets.get(GROUP, TOPIC, 0) == 0


async def test_an_ack_that_comes_after_the_next_delivery_changes_nothing(tmp_path: Path) -> None:
    """An ack after the next delivery changes nothing; its answer is success, as RocketMQ's."""
    async with with_messages(tmp_path, (0, 1)) as (broker, peer):
        first = await pop(peer)
        await trio.sleep(INVISIBLE_MS / 1000)
        second = await pop(peer)
        late = await ack(peer, first, first.records[0])
        assert (late.code, late.ext["late"]) == (ResponseCode.SUCCESS, 1)
        assert broker.machine.popped.count == 1
        assert (await ack(peer, second, second.records[0])).ext["late"] == 0
        assert broker.machine.popped.count == 0


async def test_an_ack_counts_while_nobody_else_was_given_the_message(tmp_path: Path) -> None:
    """An ack counts after its time, while it is still the message's last delivery."""
    async with with_messages(tmp_path, (0, 1)) as (broker, peer):
        first = await pop(peer)
        await trio.sleep(2 * INVISIBLE_MS / 1000)
        assert (await ack(peer, first, first.records[0])).ext["late"] == 0
        assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
        assert broker.machine.offsets.get(GROUP, TOPIC, 0) == 1


async def test_a_batch_of_acks_names_messages_by_bits(tmp_path: Path) -> None:
    """Bits 0, 3 and 9 from the first offset on are "CQI=", as Java writes them."""
    async with with_messages(tmp_path, (0, 12)) as (broker, peer):
        first = await pop(peer)
        row = {
            **{"c": GROUP, "t": TOPIC, "r": "0", "so": 0, "q": 0, "rq": 0, "it": INVISIBLE_MS},
            **{"pt": int(str(first.ext["popTime"])), "b": "CQI="},
        }
        body = json.dumps({"brokerName": "broker-a", "acks": [row]}).encode()
        answer = await ask(peer, RequestCode.BATCH_ACK_MESSAGE, body)
        assert (answer.code, answer.ext["late"]) == (ResponseCode.SUCCESS, 0)
        await trio.sleep(INVISIBLE_MS / 1000)
        left = [0, 3, 9]
        assert [at for _, at in (await pop(peer)).places] == [n for n in range(12) if n not in left]
        assert broker.machine.popped.count == 9


async def test_a_nack_brings_a_message_back_after_its_own_time(tmp_path: Path) -> None:
    """A nacked message comes back after its own time, with a new handle; the old one is void."""
    async with with_messages(tmp_path, (0, 2)) as (_, peer):
        first = await pop(peer)
        changed = await hide(peer, first, first.records[0], 10_000)
        assert int(str(changed.ext["popTime"])) > int(str(first.ext["popTime"]))
        assert (await ack(peer, first, first.records[0])).ext["late"] == 1
        await trio.sleep(9.9)
        assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
        await trio.sleep(0.2)
        again = await pop(peer)
        assert again.places == [(0, 0)]
        assert again.records[0].reconsume_times == 1


async def test_a_suspended_message_counts_no_delivery(tmp_path: Path) -> None:
    """A message hidden with `suspend` keeps its count of deliveries."""
    async with with_messages(tmp_path, (0, 1)) as (_, peer):
        first = await pop(peer)
        await hide(peer, first, first.records[0], 0, suspend=True)
        assert (await pop(peer)).records[0].reconsume_times == 0


async def test_a_longer_time_keeps_a_message_hidden(tmp_path: Path) -> None:
    """A message stays hidden for longer; our clients may keep the handle for later acks."""
    async with with_messages(tmp_path, (0, 4)) as (_, peer):
        first = await pop(peer)
        await trio.sleep(INVISIBLE_MS / 1000 - 1)
        kept = await hide(peer, first, first.records[0], INVISIBLE_MS, bits="Dw==", keep=True)
        assert (kept.ext["popTime"], kept.ext["late"]) == (int(str(first.ext["popTime"])), 0)
        await trio.sleep(30)
        assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
        assert (await ack(peer, first, first.records[2])).ext["late"] == 0


async def test_a_pop_waits_for_a_message(tmp_path: Path) -> None:
    """A new message wakes one waiting pop; the others wait until their time is over."""
    async with with_messages(tmp_path) as (_, peer):
        found: list[Popped] = []
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                found.append(await pop(peer, -1, 32, 5000))

            for _ in range(3):
                nursery.start_soon(wait)
            await trio.sleep(1)
            fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1}
            polling = await ask(peer, RequestCode.POLLING_INFO, **fields)
            assert polling.ext["pollingNum"] == 3
            await peer.request(produce_request("k", runs=[(2, 1)]), TIMEOUT_S)
            await trio.sleep(1)
            assert [each.places for each in found] == [[(2, 0)]]
        assert trio.current_time() >= 5
        assert [each.code for each in found[1:]] == [ResponseCode.POLLING_TIMEOUT] * 2


async def test_a_pop_waits_for_a_message_to_be_visible_again(tmp_path: Path) -> None:
    """A pop gets a message a quarter of a second after it is visible again."""
    async with with_messages(tmp_path, (0, 1)) as (_, peer):
        await pop(peer, -1, 32, 0, invisibleTime="3000")
        began_s = trio.current_time()
        again = await pop(peer, -1, 32, 20_000)
        assert again.places == [(0, 0)]
        assert 2.9 <= trio.current_time() - began_s <= 3.3


async def test_an_ordered_pop_blocks_its_queue_until_all_is_acknowledged(tmp_path: Path) -> None:
    """An ordered pop blocks its queue; the same attempt gets the same messages at once."""
    async with with_messages(tmp_path, (0, 5)) as (_, peer):
        first = await pop(peer, 0, 2, order="true", attemptId="a1")
        assert [at for _, at in first.places] == [0, 1]
        assert first.ext["reviveQid"] == "999"
        assert (await pop(peer, 0, 2, order="true")).code == ResponseCode.POLLING_TIMEOUT
        repeated = await pop(peer, 0, 2, order="true", attemptId="a1")
        assert repeated.places == first.places
        assert {record.reconsume_times for record in repeated.records} == {0}
        waited: list[Popped] = []
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                waited.append(await pop(peer, 0, 2, 5000, order="true"))

            nursery.start_soon(wait)
            await trio.sleep(0.1)
            await ack(peer, repeated, repeated.records[0])
            await trio.sleep(0.1)
            assert waited == []
            await ack(peer, repeated, repeated.records[1])
        assert [at for _, at in waited[0].places] == [2, 3]


async def test_an_ordered_batch_comes_again_in_order_with_what_follows(tmp_path: Path) -> None:
    """An ordered batch comes again, with what follows, once the time of all of it is over."""
    async with with_messages(tmp_path, (0, 5)) as (_, peer):
        first = await pop(peer, 0, 3, order="true")
        held = await hide(peer, first, first.records[1], 2 * INVISIBLE_MS, 999)
        assert held.ext["popTime"] == int(str(first.ext["popTime"]))
        await ack(peer, first, first.records[0])
        await trio.sleep(1.5 * INVISIBLE_MS / 1000)
        assert (await pop(peer, 0, 5, order="true")).code == ResponseCode.POLLING_TIMEOUT
        await trio.sleep(INVISIBLE_MS / 1000)
        again = await pop(peer, 0, 5, order="true")
        assert [at for _, at in again.places] == [1, 2, 3, 4]
        assert [record.reconsume_times for record in again.records] == [1, 1, 0, 0]


async def test_a_filter_passes_over_what_is_not_wanted(tmp_path: Path) -> None:
    """Messages that a filter leaves out are done: the group's offset passes them."""
    async with with_messages(tmp_path, (0, 3)) as (broker, peer):
        assert (await pop(peer, exp="Nobody")).code == ResponseCode.POLLING_TIMEOUT
        assert broker.machine.offsets.get(GROUP, TOPIC, 0) == 3


async def test_a_leader_that_is_none_any_more_answers_whoever_waits(tmp_path: Path) -> None:
    """A leader that loses the lead answers waiting pops at once; its successor knows all."""
    async with with_messages(tmp_path, (0, 2)) as (broker, peer):
        await pop(peer, 0, 1)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def wait() -> None:
                refused = await pop(peer, 3, 1, 20_000)
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert trio.current_time() < 2

            await trio.sleep(1)
            broker.ledger.follow()
        broker.ledger.lead()
        assert (await pop(peer)).places == [(0, 1)]


async def test_an_attempt_is_repeated_at_the_next_leader(tmp_path: Path) -> None:
    """A repeated attempt gets the same messages from the next leader."""
    async with with_messages(tmp_path, (0, 4)) as (broker, peer):
        first = await pop(peer, -1, 2, attemptId="one")
        broker.ledger.follow()
        broker.ledger.lead()
        assert (await pop(peer, -1, 2, attemptId="two")).places == [(0, 2), (0, 3)]
        repeated = await pop(peer, -1, 2, attemptId="one")
        assert repeated.places == first.places
        assert {record.reconsume_times for record in repeated.records} == {0}
        assert (await ack(peer, first, first.records[0])).ext["late"] == 1
        assert (await ack(peer, repeated, repeated.records[0])).ext["late"] == 0


async def test_a_notification_waits_and_takes_nothing(tmp_path: Path) -> None:
    """A notification says that there is a message; a peek shows it; neither takes it."""
    async with with_messages(tmp_path) as (broker, peer):
        fields: dict[str, ExtValue] = {
            **{"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1},
            **{"pollTime": 9000, "bornTime": 0},
        }
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def wait() -> None:
                answer = await ask(peer, RequestCode.NOTIFICATION, **fields)
                assert (answer.code, answer.ext["hasMsg"]) == (ResponseCode.SUCCESS, True)
                assert trio.current_time() < 2

            await trio.sleep(1)
            await peer.request(produce_request("k", runs=[(1, 2)]), TIMEOUT_S)
        peek = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "maxMsgNums": 9}
        seen = Popped(await ask(peer, RequestCode.PEEK_MESSAGE, **peek))
        assert seen.places == [(1, 0), (1, 1)]
        assert broker.machine.popped.count == 0
        assert (await pop(peer)).places == seen.places
        nothing = await ask(peer, RequestCode.PEEK_MESSAGE, **peek)
        assert nothing.code == ResponseCode.PULL_NOT_FOUND
        none = await ask(peer, RequestCode.NOTIFICATION, **fields)
        assert none.ext["hasMsg"] is False


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"maxMsgNums": "33"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": str(2**62)}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "4"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-2"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "TOOLS_CONSUMER"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"consumerGroup": "no group"}, ResponseCode.SYSTEM_ERROR),
        ({"expType": "SQL92", "exp": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"initMode": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_what_can_not_be_popped_is_refused(
    tmp_path: Path, changed: dict[str, ExtValue], code: int
) -> None:
    """A pop that is not possible is refused with RocketMQ's code."""
    async with with_messages(tmp_path, (0, 1)) as (broker, peer):
        answer = await peer.request(pop_request(**changed), TIMEOUT_S)
        assert answer.code == code, answer.remark
        assert broker.machine.popped.count == 0


async def test_a_first_pop_makes_its_group(tmp_path: Path) -> None:
    """A first pop makes its group with RocketMQ's default config, as a first pull does."""
    async with with_messages(tmp_path, (0, 2)) as (broker, peer):
        found = await pop(peer, consumerGroup="New")
        assert found.places == [(0, 0), (0, 1)]
        assert broker.machine.groups.get("New") is not None


async def test_pulls_of_a_group_that_pops_go_on_below_what_is_in_flight(tmp_path: Path) -> None:
    """The group's offset is its first message without an ack, so a pull misses none."""
    async with with_messages(tmp_path, (0, 4)) as (_, peer):
        first = await pop(peer)
        await ack(peer, first, first.records[0])
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
        offset = await ask(peer, RequestCode.QUERY_CONSUMER_OFFSET, **fields)
        assert offset.ext["offset"] == 1


async def test_who_pulls_commits_nothing_while_others_have_popped_messages(tmp_path: Path) -> None:
    """A pulling member commits nothing until the popped messages' time is over."""
    async with with_messages(tmp_path, (0, 4)) as (broker, peer):
        await pop(peer, 0, 2)
        await commit(peer, 3)  # a member's: it has beaten
        assert broker.machine.offsets.get(GROUP, TOPIC, 0) == 0
        assert broker.machine.popped.count == 2
        await trio.sleep(INVISIBLE_MS / 1000)
        await commit(peer, 3)
        assert broker.machine.offsets.get(GROUP, TOPIC, 0) == 3
        assert (await pop(peer, 0, 9)).places == [(0, 3)]


async def test_a_mode_says_whether_a_group_pops(tmp_path: Path) -> None:
    """A mode says whether a group pops; its topic must exist, and the group is made."""
    async with with_messages(tmp_path) as (broker, peer):

        async def put(topic: str, group: str, mode: str = "POP") -> int:
            body = {"topic": topic, "consumerGroup": group, "mode": mode, "popShareQueueNum": 2}
            answer = await ask(
                peer, RequestCode.SET_MESSAGE_REQUEST_MODE, json.dumps(body).encode()
            )
            return answer.code

        assert await put(TOPIC, GROUP) == ResponseCode.SUCCESS
        assert broker.machine.modes.get(TOPIC, GROUP) == ("POP", 2)
        assert await put(f"%RETRY%{GROUP}", GROUP) == ResponseCode.NO_PERMISSION
        assert await put("Nowhere", GROUP) == ResponseCode.TOPIC_NOT_EXIST
        assert await put(TOPIC, "New") == ResponseCode.SUCCESS
        assert broker.machine.groups.get("New") is not None
        assert await put(TOPIC, "TOOLS_CONSUMER") == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await put(TOPIC, GROUP, "PUSH") == ResponseCode.INVALID_PARAMETER
        await ask(peer, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=GROUP)
        assert broker.machine.modes.get(TOPIC, GROUP) is None
