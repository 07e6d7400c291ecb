"""Answers that wait for an outcome, and how the dispatcher gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from dledger.errors import ConnectionLost
from dledger.net import Peer, connect_peer
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import encode_header
from mqbroker.requests.sending import produce
from mqbroker.testing.memory import MemoryBroker, memory_broker, until
from mqbroker.testing.requests import TIMEOUT_S, produce_request


async def test_an_answer_that_fails_ends_its_own_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that can't be made ends its own connection alone."""
    made: list[object] = []

    def encode(header: object) -> dict[str, ExtValue]:
        made.append(header)
        if len(made) == 1:
            raise ValueError("a bug")
        return encode_header(header)  # type: ignore[type-var]

    monkeypatch.setattr(produce, "encode_header", encode)
    answers: list[Command | ConnectionLost] = []
    async with (
        memory_broker(tmp_path, auto=False) as broker,
        connect_peer(broker.host, broker.port) as first,
        connect_peer(broker.host, broker.port) as second,
        trio.open_nursery() as nursery,
    ):
        broker.ledger.commit()

        async def send(number: int) -> None:
            peer = (first, second)[number]
            try:
                answers.append(await peer.request(produce_request(f"k{number}"), TIMEOUT_S))
            except ConnectionLost as lost:
                answers.append(lost)

        for number in range(2):
            nursery.start_soon(send, number)

        def all_are_answered() -> bool:
            broker.ledger.commit()
            return len(answers) == 2

        await until(all_are_answered)

        codes = [each.code for each in answers if isinstance(each, Command)]
        assert len(made) == 2
        assert codes.count(ResponseCode.SUCCESS) == 1
        assert broker.broker.core.faults.count == 1


async def test_a_refusal_does_not_wait_for_name_servers(broker: MemoryBroker, peer: Peer) -> None:
    """A name server is to be told of a new topic: what is stored there waits for that, and what is
    refused does not."""
    async with trio.open_nursery() as nursery:
        announcements = broker.broker.core.announcements
        announcements.connected("namesrv")
        stored: list[Command] = []

        @nursery.start_soon
        async def send() -> None:
            stored.append(await peer.request(produce_request("k"), TIMEOUT_S))

        await until(lambda: broker.machine.queues.end("Orders", 0) == 2)
        other = await peer.request(produce_request("k", content=b"another"), TIMEOUT_S)
        assert other.code == ResponseCode.MESSAGE_ILLEGAL
        assert not stored

        announcements.confirmed("namesrv", announcements.version)
        await until(lambda: bool(stored))
        assert stored[0].code == ResponseCode.SUCCESS
