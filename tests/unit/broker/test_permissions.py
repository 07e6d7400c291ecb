"""A table says which acts each permission allows, and the broker is held to it, every act under
every permission.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import msgspec
import pytest
import trio

from dledger.net import Peer
from dledger.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
    SubscriptionGroupConfig,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import SendMessageResponseHeader, decode_header
from dledger.remoting.message import BatchItem, batch_encode, offset_message_id_decode
from mqbroker.leader.announcements import Announcements
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.requests import (
    GROUP,
    TIMEOUT_S,
    TOPIC,
    ask,
    commit,
    heartbeat,
    make_topic,
    produce_request,
    pull_request,
    records,
    send_request,
    topic_request,
)

from .test_once import register, write_request
from .test_popping import Popped, handle, hide, pop, pop_request
from .test_request_reply import REPLY_TOPIC, reply_request

pytestmark = pytest.mark.usefixtures("autojump_clock")

SUCCESS, DENIED = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION
COMMIT = 8
BATCH = batch_encode([BatchItem(b"one", b""), BatchItem(b"two", b"")])
LATER = {"i": "TIMER_DELAY_MS\x0160000\x02"}
LEVEL = {"i": "DELAY\x013\x02"}
HALF = {"f": "4", "i": "TRAN_MSG\x01true\x02PGROUP\x01P\x02"}


@dataclass(frozen=True)
class Allowed:
    """The permissions of a topic, of the broker group, and of a consumer group."""

    topic: int = 6
    broker: int = 6
    wiped: bool = False
    enabled: bool = True

    @property
    def rights(self) -> set[str]:
        """Names of the rights that these permissions give."""
        group = self.broker & ~2 if self.wiped else self.broker
        has = {
            "topic writable": self.topic & 2,
            "topic readable": self.topic & 4,
            "broker writable": group & 2,
            "broker readable": group & 4,
            "group enabled": self.enabled,
        }
        return {right for right, is_given in has.items() if is_given}


WRITING = {"topic writable", "broker writable"}
READING = {"topic readable", "broker readable", "group enabled"}
ALWAYS = set[str]()
STATES = [
    *(Allowed(topic, broker) for topic, broker in product((6, 4, 2, 0), (6, 4, 2, 0))),
    Allowed(wiped=True),
    Allowed(topic=4, wiped=True),
    Allowed(enabled=False),
    Allowed(topic=2, enabled=False),
]


class Scene:
    """A broker with messages in its topic, and what a client has in flight."""

    broker: MemoryBroker
    peer: Peer
    epoch: int
    half: SendMessageResponseHeader
    recall_handle: str
    popped: Popped
    position: int

    async def prepare(self) -> None:
        """Begin whatever an act may need, while all is allowed."""
        ask_ = self.peer.request
        await make_topic(self.peer)
        await ask(self.peer, RequestCode.HEART_BEAT, heartbeat("c1"))
        await ask_(produce_request("k", runs=((0, 2),)), TIMEOUT_S)
        self.popped = await pop(self.peer, 0)
        self.position = self.popped.records[0].physical_offset
        answer = await ask_(send_request(b"half", **HALF), TIMEOUT_S)
        self.half = decode_header(SendMessageResponseHeader, answer)
        later = await ask_(send_request(b"later", **LATER), TIMEOUT_S)
        self.recall_handle = str(decode_header(SendMessageResponseHeader, later).recall_handle)
        self.epoch = await register(self.peer)

    async def allow(self, state: Allowed) -> None:
        """Set the permissions of topic, broker and group."""
        request = topic_request()
        request.ext = {**request.ext, "perm": state.topic}
        assert (await self.peer.request(request, TIMEOUT_S)).code == SUCCESS
        body = f"brokerPermission={state.broker}".encode()
        assert (await ask(self.peer, RequestCode.UPDATE_BROKER_CONFIG, body)).code == SUCCESS
        await put_group(self.peer, consume_enable=state.enabled)
        self.broker.broker.core.announcements.heard("namesrv", wiped=state.wiped)

    async def send(self, code: int = RequestCode.SEND_MESSAGE_V2, /, **ext: ExtValue) -> int:
        """Send as a stock client does; the answer's code."""
        return (await self.peer.request(send_request(b"m", code, **ext), TIMEOUT_S)).code

    async def request(self, command: Command) -> int:
        """Ask for anything; the answer's code."""
        return (await self.peer.request(command, TIMEOUT_S)).code

    async def ask(self, code: RequestCode, **ext: ExtValue) -> int:
        """A request without a body."""
        return (await ask(self.peer, code, **ext)).code

    async def write_once(self) -> int:
        """Write as a named producer does; the answer's code."""
        outputs = (("o", TOPIC, ((0, 1),)),)
        return await self.request(write_request(self.epoch, 1, outputs))

    async def commit(self) -> int:
        """The end of a transaction that had begun."""
        ends = offset_message_id_decode(self.half.msg_id)[-1]
        return await self.ask(
            RequestCode.END_TRANSACTION,
            producerGroup="P",
            tranStateTableOffset=self.half.queue_offset,
            commitLogOffset=ends,
            commitOrRollback=COMMIT,
        )

    async def ack(self) -> int:
        """Acknowledge one of the popped messages."""
        record = self.popped.records[0]
        fields = handle(record, self.popped.receipt(record))
        return await self.ask(RequestCode.ACK_MESSAGE, **fields)

    async def change(self) -> int:
        """The other one comes again later."""
        answer: Command = await hide(self.peer, self.popped, self.popped.records[1], 50)
        return answer.code


QUESTION: dict[str, ExtValue] = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": -1}
ACTS: dict[str, tuple[set[str], Callable[[Scene], Awaitable[int]]]] = {
    "send": (WRITING, lambda s: s.send()),
    "send, later": (WRITING, lambda s: s.send(**LATER)),
    "send, by a level": (WRITING, lambda s: s.send(**LEVEL)),
    "send, half": (WRITING, lambda s: s.send(**HALF)),
    "send to another topic": ({"broker writable"}, lambda s: s.send(b="Others")),
    "send to retries": (ALWAYS, lambda s: s.send(b=f"%RETRY%{GROUP}", e="0")),
    "batch": (
        WRITING,
        lambda s: s.request(send_request(BATCH, RequestCode.SEND_BATCH_MESSAGE)),
    ),
    "produce": (WRITING, lambda s: s.request(produce_request("new"))),
    "write once": (WRITING, Scene.write_once),
    "pull": (READING, lambda s: s.request(pull_request())),
    "pop": (READING, lambda s: s.request(pop_request(0))),
    "peek": (READING, lambda s: s.ask(RequestCode.PEEK_MESSAGE, **QUESTION, maxMsgNums=9)),
    "notification": (
        READING,
        lambda s: s.ask(RequestCode.NOTIFICATION, **QUESTION, pollTime=0, bornTime=0),
    ),
    "polling info": (READING, lambda s: s.ask(RequestCode.POLLING_INFO, **QUESTION)),
    "commit of a transaction": (ALWAYS, Scene.commit),
    "recall": (
        ALWAYS,
        lambda s: s.ask(RequestCode.RECALL_MESSAGE, topic=TOPIC, recallHandle=s.recall_handle),
    ),
    "send back": (
        ALWAYS,
        lambda s: s.ask(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=s.position, group=GROUP, delayLevel=0
        ),
    ),
    "ack": (ALWAYS, Scene.ack),
    "another invisible time": (ALWAYS, Scene.change),
    "commit of an offset": (
        ALWAYS,
        lambda s: commit(s.peer, 0, 1),
    ),
}
FINE = {SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT}


async def put_group(peer: Peer, **changed: bool) -> None:
    """Change the group, as mqadmin does."""
    config = msgspec.structs.replace(SubscriptionGroupConfig(group_name=GROUP), **changed)
    body = encode_body(config)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert (await ask(peer, code, body)).code == SUCCESS


@pytest.fixture
async def s(tmp_path: Path) -> AsyncIterator[Scene]:
    async with served(tmp_path) as (broker, peer):
        made = Scene()
        made.broker, made.peer = broker, peer
        await made.prepare()
        yield made


@pytest.mark.parametrize("state", STATES, ids=repr)
async def test_each_act_is_judged_by_the_permissions_of_its_moment(
    s: Scene, state: Allowed
) -> None:
    """An act has code 16 exactly where the table says so, and then no effect at all."""
    await s.allow(state)
    for name, (needs, act) in ACTS.items():
        ends = s.broker.ledger.status.last_index
        code = await act(s)
        if needs <= state.rights:
            assert code in FINE, (name, code)
        else:
            assert code == DENIED, (name, code)
            assert s.broker.ledger.status.last_index == ends, name
    assert (s.broker.machine.topics.get("Others") is not None) == (
        "broker writable" in state.rights
    )


async def test_what_was_acknowledged_is_delivered_to_a_topic_that_takes_no_more(s: Scene) -> None:
    """An acknowledged delayed message, or a transaction's, arrives in a read-only topic."""
    await s.allow(Allowed(topic=4, wiped=True))
    assert await s.commit() == SUCCESS
    await until(lambda: s.broker.machine.queues.end(TOPIC, 1) == 1)
    await trio.sleep(61)
    await until(lambda: s.broker.machine.queues.end(TOPIC, 1) == 2)
    answer = await s.peer.request(pull_request(1), TIMEOUT_S)
    assert [bytes(record.body) for record in records(answer)] == [b"half", b"later"]


async def test_a_retry_of_what_is_stored_is_answered_with_its_place(s: Scene) -> None:
    """A retry of a stored message gets its place, though sends are forbidden by now."""
    await s.allow(Allowed(topic=4))
    again = await s.peer.request(produce_request("k", runs=((0, 2),)), TIMEOUT_S)
    assert (again.code, again.ext["duplicate"]) == (SUCCESS, True)
    assert await s.request(produce_request("l", runs=((0, 2),))) == DENIED


WAITING: dict[str, Command] = {
    "pull": pull_request(3, sys_flag=2 | 4, suspendTimeoutMillis=15_000),
    "pop": pop_request(3, poll_ms=15_000),
    "pop of any queue": pop_request(topic="Idle", poll_ms=15_000),
    "notification": Command(
        RequestCode.NOTIFICATION,
        {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 3, "pollTime": 15_000, "bornTime": 0},
    ),
}


@pytest.mark.parametrize("what", WAITING)
@pytest.mark.parametrize(
    "state",
    [Allowed(topic=2), Allowed(topic=0), Allowed(broker=2), Allowed(enabled=False)],
    ids=repr,
)
async def test_what_waits_is_refused_at_once(s: Scene, what: str, state: Allowed) -> None:
    """A held pull, pop or notification is refused once its permission goes."""
    await make_topic(s.peer, "Idle")
    request, answers = WAITING[what], list[tuple[int, float]]()

    async def wait() -> None:
        answer = await s.peer.request(Command(request.code, request.ext), 30)
        answers.append((answer.code, trio.current_time()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        assert not answers
        if request.ext["topic"] == "Idle" and state.topic != 6:
            await s.request(topic_request("Idle"))
            perm = {**topic_request("Idle").ext, "perm": state.topic}
            await s.request(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, perm))
        else:
            await s.allow(state)
        began_s = trio.current_time()
    ((code, answered_s),) = answers
    assert code == DENIED
    assert answered_s - began_s < 1


async def test_what_waits_goes_on_waiting_while_it_may(s: Scene) -> None:
    """A waiting request goes on if another topic or group, or sending, is forbidden."""
    answers: list[Command] = []

    async def wait() -> None:
        answers.append(await s.peer.request(WAITING["pop of any queue"], 30))

    await make_topic(s.peer, "Idle")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await s.allow(Allowed(topic=2, wiped=True))
        perm = {**topic_request("Idle").ext, "perm": 4}
        await s.request(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, perm))
        await trio.sleep(1)
        assert not answers
    assert answers[0].code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.parametrize("model", ["BROADCASTING", "CLUSTERING"])
async def test_a_group_that_may_not_broadcast_is_not_given_all_messages(
    s: Scene, model: str
) -> None:
    """consumeBroadcastEnable=false refuses pulls of a broadcasting member, held ones too."""
    data = ConsumerData(GROUP, message_model=model, subscription_data_set=[SubscriptionData(TOPIC)])
    await ask(s.peer, RequestCode.HEART_BEAT, encode_body(HeartbeatData("c1", [], [data])))
    codes: list[int] = []

    async def wait() -> None:
        codes.append(await s.request(WAITING["pull"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        await put_group(s.peer, consume_broadcast_enable=False)
    codes.append(await s.request(pull_request()))
    refused = model == "BROADCASTING"
    assert [code == DENIED for code in codes] == [refused, refused]


async def test_a_reply_needs_a_topic_that_takes_it(s: Scene) -> None:
    """A reply is passed on and not stored: only its topic's permission is asked for."""
    await s.allow(Allowed(broker=4))
    assert await s.request(reply_request()) == ResponseCode.SYSTEM_ERROR  # nobody waits for it
    perm = {**topic_request(REPLY_TOPIC).ext, "perm": 4}
    await s.request(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, perm))
    assert await s.request(reply_request()) == DENIED


async def test_a_retry_topic_that_takes_nothing_takes_no_message_back(s: Scene) -> None:
    """A retry topic's own permission decides about messages sent back, as in RocketMQ."""
    perm = {**topic_request(f"%RETRY%{GROUP}", 1).ext, "perm": 4}
    await s.request(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, perm))
    back = ACTS["send back"][1]
    assert await back(s) == DENIED


def test_the_last_word_of_a_name_server_that_is_gone_counts_only_if_none_is_there() -> None:
    """A connected name server knows better than one that left; without any, the last counts."""
    announcements = Announcements(lambda: 0.0)
    announcements.connected("a")
    announcements.connected("b")
    announcements.heard("a", wiped=True)
    assert announcements.wiped
    announcements.gone("a")
    assert not announcements.wiped
    announcements.gone("b")
    assert announcements.wiped
    announcements.connected("a")
    announcements.heard("a", wiped=False)
    assert not announcements.wiped
