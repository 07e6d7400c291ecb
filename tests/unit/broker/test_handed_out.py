"""Answers to our pops tell for each message whether it may have been delivered before."""

from __future__ import annotations

from trio.testing import MockClock

from dledger.net import Peer
from dledger.remoting.command import Command, HeaderEncoding
from dledger.remoting.receipts import read_bits
from mqbroker.testing.requests import TIMEOUT_S, send_request

from .test_popping import pop_request


def own_pop(attempt_id: str) -> Command:
    """A pop request as our client encodes it."""
    request = pop_request(attemptId=attempt_id)
    request.encoding = HeaderEncoding.MSGPACK
    return request


def told(answer: Command) -> int:
    return read_bits(str(answer.ext.get("redelivered", "")), 128)


async def test_an_attempt_that_is_repeated_says_so(peer: Peer, autojump_clock: MockClock) -> None:
    """A repeated attempt marks the messages of its first answer, which may have been lost."""
    for _ in range(3):
        await peer.request(send_request(b"x"), TIMEOUT_S)
    first = await peer.request(own_pop("one"), TIMEOUT_S)
    assert (told(first), "redelivered" in first.ext) == (0, False)
    assert told(await peer.request(own_pop("one"), TIMEOUT_S)) == 0b111
    await peer.request(send_request(b"new"), TIMEOUT_S)
    assert told(await peer.request(own_pop("two"), TIMEOUT_S)) == 0


async def test_what_comes_again_is_named_by_its_place_in_the_answer(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """Messages that come again are marked by their place in the answer to our clients."""
    await peer.request(send_request(b"x"), TIMEOUT_S)
    await peer.request(own_pop("one"), TIMEOUT_S)
    autojump_clock.jump(61)
    await peer.request(send_request(b"new"), TIMEOUT_S)
    assert told(await peer.request(own_pop("two"), TIMEOUT_S)) == 0b01
    autojump_clock.jump(61)
    assert "redelivered" not in (await peer.request(pop_request(), TIMEOUT_S)).ext
