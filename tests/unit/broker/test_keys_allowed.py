"""Messages of one request have a bounded number of keys: all of them are indexed at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import RegisterProducerHeader, WriteOnceHeader, encode_header
from dledger.remoting.message import BatchItem, batch_encode, properties_encode
from dledger.remoting.record import encode_record
from mqbroker import limits
from mqbroker.testing import served
from mqbroker.testing.requests import BORN_HOST, TIMEOUT_S, TOPIC, make_topic, send_request

Batch = list[dict[str, str]]


def record(number: int, properties: dict[str, str]) -> bytes:
    """A record of our producers."""
    return encode_record(
        topic=TOPIC.encode(),
        queue_id=0,
        body=b"x",
        properties=properties_encode({"UNIQ_KEY": f"{number}", **properties}),
        born_timestamp_ms=1,
        born_host=BORN_HOST,
    )


def produce(batch: Batch) -> Command:
    """A PRODUCE request with the batch's records."""
    records = [record(number, each) for number, each in enumerate(batch)]
    ext = {"topic": TOPIC, "producerGroup": "P", "runs": [[0, len(records)]]}
    return Command(RequestCode.PRODUCE, ext, b"".join(records))


def write_once(batch: Batch) -> Command:
    """WRITE_ONCE, with a part for each message."""
    records = [record(number, each) for number, each in enumerate(batch)]
    header = WriteOnceHeader(
        producer_name="billing",
        epoch=1,
        stream=0,
        sequence=0,
        parts=[(TOPIC, len(each), [(0, 1)]) for each in records],
        group="",
        moves=[],
    )
    return Command(RequestCode.WRITE_ONCE, encode_header(header), b"".join(records))


def send_batch(batch: Batch) -> Command:
    """A stock client's request for the batch."""
    items = [BatchItem(b"x", properties_encode(each)) for each in batch]
    return send_request(batch_encode(items), RequestCode.SEND_BATCH_MESSAGE, m="true")


async def answer(peer: Peer, request: Command, epoch: int = 0) -> Command:
    """The answer to a request; its `epoch` is filled in if it has one."""
    if "epoch" in request.ext:
        request.ext["epoch"] = epoch
    return await peer.request(request, TIMEOUT_S)


@pytest.mark.parametrize("made", [produce, write_once, send_batch])
async def test_messages_of_a_request_have_so_many_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Batch], Command]
) -> None:
    """A request with one key too many is refused with the bound, and nothing is stored."""
    messages = 20
    allowed = 40
    monkeypatch.setattr(
        limits, "KEYS_PER_BATCH_MAX", allowed + messages * limits.KEYS_PER_MESSAGE_WEIGHT
    )
    other = {"xKEYS": "a b c d e f g h", "note": "KEYS is a b c d"}
    async with served(tmp_path) as (broker, peer):
        await make_topic(peer)
        register = RegisterProducerHeader(producer_name="billing", instance="i")
        named = await answer(peer, Command(RequestCode.REGISTER_PRODUCER, encode_header(register)))
        epoch = int(str(named.ext["epoch"]))
        before = broker.machine.keys.end
        batch = [{"KEYS": "a b", **other} for _ in range(messages)]
        batch[7]["KEYS"] = "a b c"
        refused = await answer(peer, made(batch), epoch)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"at most {allowed} " in str(refused.remark)
        assert broker.machine.keys.end == before
        batch[7]["KEYS"] = "a b"
        taken = await answer(peer, made(batch), epoch)
        assert taken.code == ResponseCode.SUCCESS, taken.remark
        assert broker.machine.keys.end >= before + messages * 3
