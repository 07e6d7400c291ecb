"""Answers about a new topic wait until the name servers know the topic."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.message import BatchItem, batch_encode
from mqbroker import limits
from mqbroker.leader.announcements import Announcements
from mqbroker.testing import MemoryBroker, until
from mqbroker.testing.requests import (
    GROUP,
    ask,
    heartbeat,
    produce_request,
    send_request,
    topic_request,
)


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_an_answer_waits_for_every_connected_name_server() -> None:
    """A name server that went away is not waited for; older confirmations don't count."""
    announcements, answers = Announcements(Clock()), list[str]()
    for namesrv in ("one", "two", "three"):
        announcements.connected(namesrv)
    before = announcements.version
    announcements.changed(["Orders"])
    announcements.when_confirmed("Orders", lambda: answers.append("waits"))
    announcements.when_confirmed("Payments", lambda: answers.append("known before"))
    announcements.confirmed("one", announcements.version)
    announcements.confirmed("two", before)
    assert answers == ["known before"]
    announcements.confirmed("three", announcements.version)
    assert answers == ["known before"]
    announcements.gone("two")
    assert answers == ["known before", "waits"]
    announcements.when_confirmed("Orders", lambda: answers.append("told"))
    assert answers[2:] == ["told"]


def test_an_answer_waits_for_the_newest_change_of_its_topic() -> None:
    """A confirmation of a topic's first change releases the answers about that change alone."""
    announcements, answers = Announcements(Clock()), list[str]()
    announcements.connected("one")
    announcements.changed(["Orders"])
    announcements.when_confirmed("Orders", lambda: answers.append("made"))
    first = announcements.version
    announcements.changed(["Orders"])
    announcements.when_confirmed("Orders", lambda: answers.append("changed"))
    announcements.confirmed("one", first)
    assert answers == ["made"]
    announcements.confirmed("one", announcements.version)
    assert answers == ["made", "changed"]


def test_without_a_name_server_nobody_waits() -> None:
    """An answer waits for nobody without name servers: the broker's address is known."""
    announcements, answers = Announcements(Clock()), list[str]()
    announcements.changed(["Orders"])
    announcements.when_confirmed("Orders", lambda: answers.append("answer"))
    assert answers == ["answer"]


def test_a_name_server_that_hangs_holds_answers_for_a_second() -> None:
    """An answer waits until a second after the change, however late it is asked for."""
    clock = Clock()
    announcements, answers = Announcements(clock), list[str]()
    announcements.connected("hangs")
    announcements.changed(["Orders"])
    announcements.when_confirmed("Orders", lambda: answers.append("first"))
    clock.now_s = limits.ANNOUNCE_S / 2
    announcements.when_confirmed("Orders", lambda: answers.append("second"))
    announcements.release()
    assert answers == []
    clock.now_s = limits.ANNOUNCE_S
    announcements.release()
    assert answers == ["first", "second"]


def test_no_more_answers_wait_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer beyond the bound is given at once."""
    monkeypatch.setattr(limits, "ANNOUNCED_WAITING_MAX", 2)
    announcements, answers = Announcements(Clock()), list[int]()
    announcements.connected("hangs")
    announcements.changed(["Orders"])
    for number in range(3):
        announcements.when_confirmed("Orders", partial(answers.append, number))
    assert answers == [2]


TO_A_NEW_TOPIC = {
    "produce": produce_request("a"),
    "send": send_request(),
    "delayed": send_request(i="DELAY\x011\x02"),
    "half": send_request(i="TRAN_MSG\x01true\x02PGROUP\x01P\x02"),
    "batch": send_request(
        batch_encode([BatchItem(b"one", b"", 0), BatchItem(b"two", b"", 0)]),
        RequestCode.SEND_BATCH_MESSAGE,
    ),
    "updateTopic": topic_request(),
}


def name_server(broker: MemoryBroker) -> Announcements:
    """Announcements with a connected name server that has confirmed every change so far."""
    announcements = broker.broker.core.announcements
    announcements.connected("namesrv")
    announcements.confirmed("namesrv", announcements.version)
    return announcements


@pytest.mark.parametrize("request_", TO_A_NEW_TOPIC.values(), ids=TO_A_NEW_TOPIC)
async def test_the_topic_of_an_answer_can_be_looked_up(
    broker: MemoryBroker, peer: Peer, request_: Command
) -> None:
    """The answer follows when name servers know; those to later requests need not wait."""
    announcements = name_server(broker)
    answers: list[Command] = []

    async def ask_and_note() -> None:
        answers.append(await peer.request(request_, 5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask_and_note)
        await until(lambda: broker.machine.topics.get("Orders") is not None)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c"))
        assert answers == [], "answered before the name server knows"
        announcements.confirmed("namesrv", announcements.version)
    assert [answer.code for answer in answers] == [ResponseCode.SUCCESS], answers[0].remark
    again = await peer.request(produce_request("later"), 5)
    assert again.code == ResponseCode.SUCCESS, again.remark


async def test_a_name_server_that_hangs_does_not_make_a_send_fail(
    broker: MemoryBroker, peer: Peer, autojump_clock: trio.testing.MockClock
) -> None:
    """A send is answered within a stock producer's time-out, though a name server is silent."""
    name_server(broker)
    answer = await peer.request(send_request(), 5)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert limits.ANNOUNCE_S <= trio.current_time() < 1.5


async def test_the_dead_letter_topic_of_an_answer_can_be_looked_up(
    broker: MemoryBroker, peer: Peer
) -> None:
    """An answer about the first dead letter waits until name servers know its topic."""
    await ask(peer, RequestCode.HEART_BEAT, heartbeat("c"))
    stored = await peer.request(produce_request("a"), 5)
    announcements = name_server(broker)
    answers: list[Command] = []

    async def send_back() -> None:
        position = stored.ext["position"]
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        answers.append(await ask(peer, code, offset=position, group=GROUP, delayLevel=-1))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_back)
        await until(lambda: broker.machine.topics.get(f"%DLQ%{GROUP}") is not None)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c"))
        assert answers == []
        announcements.confirmed("namesrv", announcements.version)
    assert answers[0].code == ResponseCode.SUCCESS, answers[0].remark
