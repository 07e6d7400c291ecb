"""Sends of a message object that was sent before are stored again, unless they are the client's
retry.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from dledger.log.entry import Kind
from dledger.net import Peer, connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue, HeaderEncoding
from dledger.remoting.headers import (
    PullMessageResponseHeader,
    SendMessageResponseHeader,
    decode_header,
)
from dledger.remoting.message import BatchItem, batch_encode, host_bytes, properties_encode
from mqbroker import limits
from mqbroker.leader.appending.drafts import NewRecord
from mqbroker.leader.appending.resends import (
    Asker,
    Send,
    Unheard,
    in_span,
    same_send,
    waits_in_vain,
)
from mqbroker.state import control
from mqbroker.state.dedup import StoredCopy
from mqbroker.testing import MemoryBroker, memory_broker, served, until
from mqbroker.testing.requests import ask, oneway, pull_request, records, send_request

KEY = "UNIQ_KEY\x01k\x02"


def message(properties: str = "", body: bytes = b"hello", /, **changed: ExtValue) -> Command:
    """The message object with the key "k", as a stock client sends it."""
    return send_request(body, **{"i": KEY + properties} | changed)


async def stored_bodies(peer: Peer, queue_id: int = 1) -> list[bytes]:
    return [bytes(each.body) for each in records(await peer.request(pull_request(queue_id), 5))]


def place(answer: Command) -> tuple[int, int]:
    """Queue and offset that a send was answered with."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    sent = decode_header(SendMessageResponseHeader, answer)
    return sent.queue_id, sent.queue_offset


def lead_anew(broker: MemoryBroker) -> None:
    broker.ledger.follow("n1")
    broker.ledger.lead()


# -- an application sends again --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("again", "queue_id", "bodies"),
    [
        (message(), 1, [b"hello", b"hello"]),
        (message(e="2"), 2, [b"hello"]),
        (message(g="6"), 1, [b"hello", b"hello"]),
        (message("", b"another body"), 1, [b"hello", b"another body"]),
        (message("MIN_OFFSET\x010\x02MAX_OFFSET\x011\x02"), 1, [b"hello", b"hello"]),
    ],
    ids=["same", "other-queue", "later", "other-body", "consumed"],
)
async def test_an_answered_message_that_is_sent_again_is_stored_again(
    peer: Peer, again: Command, queue_id: int, bodies: list[bytes]
) -> None:
    """A message object that is sent again after its answer is stored again, as by stock brokers."""
    first = await peer.request(message(), 5)
    second = await peer.request(again, 5)
    assert place(second) == (queue_id, len(bodies) - 1)
    assert second.ext["msgId"] != first.ext["msgId"]
    assert await stored_bodies(peer, queue_id) == bodies


async def test_three_oneway_sends_of_one_object_store_three(
    broker: MemoryBroker, peer: Peer
) -> None:
    """One-way sends of one object are each stored, also after a change of leaders."""
    for count in range(1, 4):
        peer.send_oneway(oneway(message()))
        await until(lambda count=count: broker.machine.queues.end("Orders", 1) == count)  # type: ignore[misc]
        lead_anew(broker)


async def test_a_consumed_message_comes_again_after_its_delay(tmp_path: Path) -> None:
    """A consumed message with a level comes again after its delay, as an application's retry."""
    async with served(tmp_path, clock_ms=lambda: 1000) as (broker, peer):
        await peer.request(message(), 5)
        again = await peer.request(message("MAX_OFFSET\x011\x02DELAY\x013\x02"), 5)
        assert place(again) == (1, 0)
        assert broker.machine.queues.end("SCHEDULE_TOPIC_XXXX", 2) == 1


async def test_batches_delays_and_transactions_are_stored_again_too(tmp_path: Path) -> None:
    """Batches, delayed and half messages that are sent twice are stored twice."""
    items = [BatchItem(b"one", KEY.encode()), BatchItem(b"two", b"UNIQ_KEY\x01l\x02")]
    async with served(tmp_path, clock_ms=lambda: 1000) as (broker, peer):
        for _ in range(2):
            batch = send_request(batch_encode(items), RequestCode.SEND_BATCH_MESSAGE)
            for request in (
                batch,
                message("DELAY\x011\x02"),
                message("TIMER_DELAY_SEC\x015\x02"),
                message("TRAN_MSG\x01true\x02PGROUP\x01P\x02", f="4"),
            ):
                answer = await peer.request(request, 5)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
        ends = broker.machine.queues.end
        assert ends("Orders", 1) == 4
        assert ends("SCHEDULE_TOPIC_XXXX", 0) == 2
        assert ends("rmq_sys_wheel_timer", 0) == 2
        assert ends("RMQ_SYS_TRANS_HALF_TOPIC", 0) == 2


# -- a client tries again --------------------------------------------------------------------------


async def messages_wait(broker: MemoryBroker, count: int = 1) -> None:
    """Wait until `count` entries of messages wait for their commit."""
    await until(lambda: sum(e.kind == Kind.MESSAGES for e in broker.ledger.uncommitted) == count)


async def lost_try(broker: MemoryBroker, request: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A try that waits for its commit, over a connection that the broker knows to be gone."""
    gone = trio.Event()
    told = broker.broker.handler.disconnected
    monkeypatch.setattr(broker.broker.handler, "disconnected", lambda c: (told(c), gone.set()))
    async with connect_peer(broker.host, broker.port) as peer, trio.open_nursery() as nursery:
        nursery.start_soon(peer.request, request, 5)
        await messages_wait(broker)
        nursery.cancel_scope.cancel()
    await gone.wait()
    monkeypatch.undo()


async def test_a_retry_over_another_connection_waits_for_the_first_tries_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry to another queue is answered with the first try's place, once that is committed."""
    async with served(tmp_path, auto=False) as (broker, peer):
        broker.ledger.commit()
        await lost_try(broker, message(), monkeypatch)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def again() -> None:
                answer = await peer.request(message(e="3"), 5)
                assert place(answer) == (1, 0)

            await trio.sleep(0.05)
            await messages_wait(broker)
            broker.ledger.commit()
        assert await stored_bodies(peer, 3) == []


async def test_a_retry_of_what_was_stored_and_could_not_be_told_gets_the_first_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A retry gets the first place; after its answer, the next send is stored."""
    async with served(tmp_path, auto=False) as (broker, peer):
        broker.ledger.commit()
        await lost_try(broker, message(), monkeypatch)
        broker.ledger.commit()
        retried = await peer.request(message("traceparent\x0100-1\x02", e="2"), 5)
        assert place(retried) == (1, 0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.request, message(), 5)
            await messages_wait(broker)
            broker.ledger.commit()
        assert broker.machine.queues.end("Orders", 1) == 2


@pytest.mark.parametrize(
    ("again", "retry"),
    [
        (message(), True),
        (message(e="2", g="10005"), True),
        (send_request(i="A\x01b\x02" + KEY), False),
        (message(g="10006"), False),
        (message("", b"another body"), False),
        (message("DELAY\x011\x02"), False),
        (message(h="1"), False),
        (message(f="1"), False),
    ],
    ids=["same", "queue-and-born", "property", "span", "body", "delay", "flag", "sys-flag"],
)
async def test_what_an_earlier_leader_stored_may_be_tried_again(
    broker: MemoryBroker, peer: Peer, again: Command, retry: bool
) -> None:
    """The first send like one of an earlier leader is its retry, and the next one is not."""
    first = await peer.request(message(), 5)
    lead_anew(broker)
    second = await peer.request(again, 5)
    assert second.code == ResponseCode.SUCCESS
    assert (second.ext["msgId"] == first.ext["msgId"]) == retry
    third = await peer.request(again, 5)
    assert third.ext["msgId"] not in (first.ext["msgId"], second.ext["msgId"])


async def test_a_retry_is_one_of_the_newest_copy(broker: MemoryBroker, peer: Peer) -> None:
    """A retry is of the newest of two equal sends before the change of leaders."""
    _, last = await peer.request(message(), 5), await peer.request(message(e="2"), 5)
    lead_anew(broker)
    assert (await peer.request(message(), 5)).ext["msgId"] == last.ext["msgId"]


async def test_a_copy_stands_for_one_send_at_a_time(broker: MemoryBroker, peer: Peer) -> None:
    """A copy answers one send, also while that answer waits for the name servers."""
    first = await peer.request(message(), 5)
    lead_anew(broker)
    announcements = broker.broker.core.announcements
    announcements.connected("namesrv")
    announcements.changed(["Orders"])
    answers: list[Command] = []

    async def send() -> None:
        answers.append(await peer.request(message(), 5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        nursery.start_soon(send)
        await until(lambda: broker.machine.queues.end("Orders", 1) == 2)
        assert not answers
        announcements.confirmed("namesrv", announcements.version)
    assert sum(each.ext["msgId"] == first.ext["msgId"] for each in answers) == 1


async def test_a_retry_comes_within_the_span_by_the_leaders_clock_too(tmp_path: Path) -> None:
    """A retry is known by the leader's clock, too: a message stored long ago is no first try."""
    now_ms = [1000]
    async with served(tmp_path, clock_ms=lambda: now_ms[0]) as (broker, peer):
        await peer.request(message(), 5)
        lead_anew(broker)
        now_ms[0] += int(limits.RETRY_SPAN_S * 1000) + 1
        await peer.request(message(), 5)
        assert await stored_bodies(peer) == [b"hello", b"hello"]


async def test_retries_of_batches_and_of_messages_that_wait_are_known(tmp_path: Path) -> None:
    """Retries of batches and delayed messages are known, and get the first copy's handle."""
    items = [BatchItem(b"one", KEY.encode()), BatchItem(b"two", b"UNIQ_KEY\x01l\x02")]
    now_ms = [1000]
    async with served(tmp_path, clock_ms=lambda: now_ms[0]) as (broker, peer):
        for request in (
            send_request(batch_encode(items), RequestCode.SEND_BATCH_MESSAGE),
            message("DELAY\x015\x02"),
            message("TIMER_DELAY_SEC\x015\x02"),
            message("TRAN_MSG\x01true\x02PGROUP\x01P\x02", f="4"),
        ):
            first = await peer.request(request, 5)
            lead_anew(broker)
            now_ms[0] += 100
            again = await peer.request(request, 5)
            assert (again.code, again.ext) == (ResponseCode.SUCCESS, first.ext)


async def test_our_own_client_may_repeat_a_send_for_as_long_as_the_window_lasts(
    broker: MemoryBroker, peer: Peer
) -> None:
    """A client of ours gives each send its own key, so the key alone tells a retry."""
    request = message("TIMER_DELAY_SEC\x01500\x02")
    request.encoding = HeaderEncoding.MSGPACK
    answers = [await peer.request(request, 5) for _ in range(3)]
    assert answers[0].ext == answers[1].ext == answers[2].ext
    assert broker.machine.queues.end("rmq_sys_wheel_timer", 0) == 1


async def test_our_batches_window_is_not_moved_by_a_stock_client_that_sends_one_again(
    peer: Peer,
) -> None:
    """A stock client that sends one of our batch's messages leaves our retry window as it is."""
    own = message("A\x01b\x02")
    own.encoding = HeaderEncoding.MSGPACK
    first = await peer.request(own, 5)
    await peer.request(message("A\x01b\x02MAX_OFFSET\x011\x02"), 5)
    again = await peer.request(own, 5)
    assert again.ext["msgId"] == first.ext["msgId"]
    pulled = await peer.request(pull_request(1), 5)
    assert decode_header(PullMessageResponseHeader, pulled).max_offset == 2


async def test_a_send_is_known_by_its_unique_key_and_no_name_like_it(
    broker: MemoryBroker, peer: Peer
) -> None:
    """The replicas go by the whole name of the property, and so does the leader."""
    request = send_request(i="MY_UNIQ_KEY\x01x\x02" + KEY)
    first = await peer.request(request, 5)
    lead_anew(broker)
    assert (await peer.request(request, 5)).ext["msgId"] == first.ext["msgId"]


# -- the rule's parts ------------------------------------------------------------------------------


def record(host: str = "10.0.0.1", port: int = 1, born_ms: int = 0, **properties: str) -> NewRecord:
    return NewRecord(b"body", properties_encode(properties), born_ms, host_bytes(host, port))


def test_a_try_is_known_over_reconnects_and_tracing_and_from_no_other_address() -> None:
    """Ports differ, properties come in any order, and agents write some anew."""
    first = record(A="a", B="b", sw8="1")
    assert same_send([first], [record(port=2, B="b", A="a", traceparent="2")])
    assert not same_send([first], [record("10.0.0.2", A="a", B="b")])
    assert not same_send([first], [record(A="a", B="c")])
    assert not same_send([first], [record(A="a", B="b")] * 2)


def test_the_span_is_the_clients_clock_in_either_direction() -> None:
    """A retry is known within the span, though its client's clock was set back."""
    span_ms = int(limits.RETRY_SPAN_S * 1000)
    first = record(born_ms=span_ms)
    assert same_send([first], [record(born_ms=0)])
    assert same_send([first], [record(born_ms=2 * span_ms)])
    assert not same_send([first], [record(born_ms=2 * span_ms + 1)])
    assert in_span(0, span_ms)
    assert not in_span(0, span_ms + 1)


def test_who_waits_over_one_connection_does_not_ask_again_at_once() -> None:
    """A second send over one connection is a retry after the client's time-out only."""
    waiting = Asker(1, 100.0)
    assert not waits_in_vain(waiting, Asker(1, 100.0 + limits.RETRY_PATIENCE_S - 0.01))
    assert waits_in_vain(waiting, Asker(1, 100.0 + limits.RETRY_PATIENCE_S))
    assert waits_in_vain(waiting, Asker(2, 100.0))
    assert waits_in_vain(None, Asker(1, 100.0))


def test_what_the_leader_remembers_of_answers_is_bounded() -> None:
    """Remembered answers are bounded: copies that nobody heard of go first."""
    unheard = Unheard(copies_max=3)
    for number in range(10):
        asker = Asker(number, 0.0)
        copy = unheard.open(Send([b"%d" % number], [record()], asker, 0))
        copy.place = StoredCopy(number, 1)
        unheard.answered(asker, reached=False)
    assert len(unheard) == 3
    assert [len(unheard.of(b"%d" % number)) for number in range(10)] == [0] * 7 + [1] * 3
    unheard.reset(last_position=100)
    assert len(unheard) == 0
    for number in range(10):
        asker = Asker(number, 0.0)
        copy = unheard.open(Send([b"k"], [record()], asker, 0))
        copy.place = StoredCopy(number, 1)
        unheard.answered(asker, reached=True)
    told = [not unheard.unknown(b"k", StoredCopy(number, 1)) for number in range(10)]
    assert told == [False] * 7 + [True] * 3
    assert len(unheard) == 3


def test_one_key_has_few_copies_to_look_through() -> None:
    """A key has few copies to look through, though one object be sent ten thousand times."""
    unheard = Unheard()
    askers = [Asker(1, 0.0) for _ in range(10_000)]
    copies = [unheard.open(Send([b"k"], [record()], asker, 0)) for asker in askers]
    assert unheard.of(b"k") == copies[-limits.UNHEARD_COPIES_PER_KEY_MAX :]
    for asker in askers:
        unheard.answered(asker, reached=False)
    assert unheard.of(b"k") == copies[-limits.UNHEARD_COPIES_PER_KEY_MAX :]


async def test_a_copy_that_retention_has_dropped_is_no_first_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that retention dropped is no first try: the send is stored."""
    async with served(tmp_path, auto=False) as (broker, peer):
        broker.ledger.commit()
        await lost_try(broker, message(), monkeypatch)
        broker.ledger.commit()
        position = broker.ledger.status.end_position
        drop = control.encode_control(control.DropHead(position, broker.machine.applied_index + 1))
        broker.ledger.append_nowait(drop, Kind.CONTROL, lambda _: None)
        broker.ledger.commit()
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def again() -> None:
                assert place(await peer.request(message(), 5)) == (1, 1)

            await messages_wait(broker)
            broker.ledger.commit()


def test_who_is_answered_after_somebody_else_took_over_closes_nothing() -> None:
    """The first connection takes an answer that its client does not wait for any more."""
    unheard, first, second = Unheard(), Asker(1, 0.0), Asker(2, 1.0)
    copy = unheard.open(Send([b"k"], [record()], first, 0))
    unheard.take_over(copy, second)
    unheard.answered(first, reached=True)
    assert unheard.of(b"k") == [copy]
    unheard.answered(second, reached=False)
    assert unheard.of(b"k") == [copy]
    unheard.take_over(copy, first)
    unheard.answered(first, reached=True)
    assert len(unheard) == 0


async def test_a_refused_send_leaves_nothing_behind(tmp_path: Path) -> None:
    """A send that was refused leaves nothing behind, and is stored when it is tried again."""
    async with memory_broker(tmp_path) as broker, connect_peer(broker.host, broker.port) as peer:
        large = message("", b"x" * (4 << 20))
        assert (await peer.request(large, 5)).code == ResponseCode.SUCCESS
        broker.ledger.follow("n1")
        assert (await peer.request(message(), 5)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        broker.ledger.lead()
        assert (await peer.request(message(), 5)).code == ResponseCode.SUCCESS
        viewed = await ask(peer, RequestCode.GET_MAX_OFFSET, topic="Orders", queueId=1)
        assert int(str(viewed.ext["offset"])) == 2
