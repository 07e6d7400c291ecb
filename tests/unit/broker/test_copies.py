"""Every message that is taken can be given up: retries, dead letters and messages sent again always
fit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from dledger.limits import PROPERTIES_BYTES_MAX, PROPERTIES_SENT_BYTES_MAX
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import (
    ProduceHeader,
    SendMessageResponseHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.message import (
    BatchItem,
    batch_encode,
    offset_message_id_decode,
    properties_decode,
    properties_encode,
)
from dledger.remoting.record import Record, encode_record
from mqbroker import limits
from mqbroker.leader.appending.drafts import NewRecord, RecordsDraft
from mqbroker.requests.sending.copies import copied
from mqbroker.testing import MemoryBroker, served, until
from mqbroker.testing.leading import HOST
from mqbroker.testing.requests import (
    BORN_HOST,
    TIMEOUT_S,
    ask,
    heartbeat,
    make_topic,
    pull_request,
    records,
    send_request,
)

pytestmark = pytest.mark.usefixtures("autojump_clock")

SUCCESS, ILLEGAL = ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL
LONGEST_TOPIC = "T" * 127
LONGEST_GROUP = "G" * 120
RETRIES, DEAD = f"%RETRY%{LONGEST_GROUP}", f"%DLQ%{LONGEST_GROUP}"
OFFSET_ID = f"{'A' * 32}"
Send = Callable[["Scene", str], Awaitable[int]]


class Scene:
    """A broker, and how messages get into it and through their group's hands."""

    def __init__(self, broker: MemoryBroker, peer: Peer, later_ms: list[int]) -> None:
        self.broker = broker
        self.peer = peer
        self.later_ms = later_ms
        self._read: dict[str, int] = {}

    async def request(self, command: Command) -> int:
        """The code of an answer."""
        return (await self.peer.request(command, TIMEOUT_S)).code

    async def stock(self, filler: str, more: str = "", topic: str = LONGEST_TOPIC) -> int:
        """A single send of a stock client."""
        text = f"filler\x01{filler}\x02{more}"
        return await self.request(send_request(b"m", b=topic, e="0", i=text))

    async def batch(self, filler: str) -> int:
        """A batch of a stock client."""
        items = [BatchItem(b"m", properties_encode({"filler": filler}))]
        code = RequestCode.SEND_BATCH_MESSAGE
        return await self.request(send_request(batch_encode(items), code, b=LONGEST_TOPIC, e="0"))

    async def produce(self, filler: str) -> int:
        """Send a batch of ours; the answer's code."""
        record = encode_record(
            topic=LONGEST_TOPIC.encode(),
            queue_id=0,
            body=b"m",
            properties=properties_encode(
                {"UNIQ_KEY": f"{filler[0]}{len(filler)}", "filler": filler}
            ),
            born_timestamp_ms=1,
            born_host=BORN_HOST,
        )
        header = ProduceHeader(topic=LONGEST_TOPIC, producer_group="P", runs=[(0, 1)])
        return await self.request(Command(RequestCode.PRODUCE, encode_header(header), record))

    async def half(self, filler: str) -> int:
        """A transaction that is committed."""
        text = f"filler\x01{filler}\x02TRAN_MSG\x01true\x02PGROUP\x01P\x02"
        request = send_request(b"m", b=LONGEST_TOPIC, e="0", f="4", i=text)
        answer = await self.peer.request(request, TIMEOUT_S)
        if answer.code == SUCCESS:
            sent = decode_header(SendMessageResponseHeader, answer)
            ends: dict[str, ExtValue] = {
                "producerGroup": "P",
                "tranStateTableOffset": sent.queue_offset,
                "commitLogOffset": offset_message_id_decode(sent.msg_id)[-1],
                "commitOrRollback": 8,
            }
            assert (await ask(self.peer, RequestCode.END_TRANSACTION, **ends)).code == SUCCESS
        return answer.code

    async def next_of(self, topic: str) -> Record:
        """The next message of a topic."""
        queues = self.broker.machine.queues
        offset = self._read.get(topic, 0)
        await until(lambda: queues.end(topic, 0) > offset)
        pull = pull_request(0, offset, topic=topic, consumerGroup=LONGEST_GROUP)
        (record, *_) = records(await self.peer.request(pull, TIMEOUT_S))
        self._read[topic] = offset + 1
        return record

    async def send_back(self, record: Record, **how: ExtValue) -> None:
        """Send a record back as a consumer that can't handle it."""
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        fields = {"group": LONGEST_GROUP, "delayLevel": 0, "offset": record.physical_offset}
        answer = await ask(self.peer, code, **{**fields, **how})
        assert answer.code == SUCCESS, answer.remark

    async def to_the_dead_letters(self, record: Record) -> Record:
        """Tried again by a level, then by a time of its own, then given up."""
        how: dict[str, ExtValue]
        for how in ({"originMsgId": "F" * 56}, {"delayMillis": 40 * 86_400_000}):
            await self.send_back(record, **how)
            self.later_ms[0] += 41 * 86_400_000
            record = await self.next_of(RETRIES)
        await self.send_back(record, delayLevel=-1)
        return await self.next_of(DEAD)


@asynccontextmanager
async def begun(directory: Path) -> AsyncIterator[tuple[Scene, Peer]]:
    """A broker whose wall clock the scene puts forward."""
    later_ms = [0]
    clock_ms = lambda: int(trio.current_time() * 1000) + later_ms[0]  # noqa: E731
    async with served(directory, clock_ms=clock_ms) as (broker, peer):
        yield Scene(broker, peer, later_ms), peer


WAYS: dict[str, Send] = {
    "single": Scene.stock,
    "batch": Scene.batch,
    "ours": Scene.produce,
    "committed": Scene.half,
    "level": lambda s, filler: s.stock(filler, "DELAY\x013\x02"),
    "timer": lambda s, filler: s.stock(filler, "TIMER_DELAY_SEC\x015\x02"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_the_largest_that_is_taken_can_be_given_up_and_sent_again(
    way: str, tmp_path: Path
) -> None:
    """The largest message that any way of sending takes can be given up and sent again."""
    async with begun(tmp_path) as (scene, peer):
        await make_topic(peer, LONGEST_TOPIC)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1", LONGEST_GROUP, LONGEST_TOPIC))
        low, high = 20_000, PROPERTIES_BYTES_MAX
        while high - low > 1:
            middle = (low + high) // 2
            code = await WAYS[way](scene, "x" * middle)
            assert code in (SUCCESS, ILLEGAL)
            low, high = (middle, high) if code == SUCCESS else (low, middle)
        assert low > PROPERTIES_SENT_BYTES_MAX - 500
        assert await WAYS[way](scene, "y" * low) == SUCCESS
        scene.later_ms[0] += 60_000
        record = await scene.next_of(LONGEST_TOPIC)
        while properties_decode(record.properties)["filler"] != "y" * low:
            record = await scene.next_of(LONGEST_TOPIC)
        for _ in range(2):
            dead = await scene.to_the_dead_letters(record)
            kept = properties_decode(dead.properties)
            assert kept["filler"] == "y" * low
            assert kept["RETRY_TOPIC"] == LONGEST_TOPIC
            assert "LEFT_OUT" not in kept
            # `mqadmin redriveDeadLetters` sends a dead letter like this.
            again = f"ORIGIN_MESSAGE_ID\x01{kept['ORIGIN_MESSAGE_ID']}\x02"
            assert await scene.stock(kept["filler"], again + f"UNIQ_KEY\x01{'R' * 65}\x02") == 0
            while properties_decode(record.properties).get("UNIQ_KEY") != "R" * 65:
                record = await scene.next_of(LONGEST_TOPIC)


async def test_a_consumers_own_copy_is_taken_when_its_message_was(tmp_path: Path) -> None:
    """A stock consumer's own copy is taken, also if maxMessageSize is less by now."""
    async with begun(tmp_path) as (scene, peer):
        await make_topic(peer)
        filler = "x" * (PROPERTIES_SENT_BYTES_MAX - 120)
        assert await scene.stock(filler, topic="Orders") == SUCCESS
        body = b"maxMessageSize=100"
        assert (await ask(peer, RequestCode.UPDATE_BROKER_CONFIG, body)).code == SUCCESS
        more = (
            f"filler\x01{filler}\x02RETRY_TOPIC\x01{LONGEST_TOPIC}\x02ORIGIN_MESSAGE_ID\x01"
            f"{OFFSET_ID}\x02RECONSUME_TIME\x0116\x02MAX_RECONSUME_TIMES\x0116\x02DELAY\x0118\x02"
        )
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1", LONGEST_GROUP, LONGEST_TOPIC))
        assert await scene.request(send_request(b"m" * 4000, b=RETRIES, e="0", i=more)) == SUCCESS
        assert await scene.request(send_request(b"m" * 4000)) == ILLEGAL


@pytest.mark.parametrize(
    "odd",
    [
        "name\x01a value \x01 with a separator\x02",
        "\x01a value without a name\x02",
        "a name without a value\x02",
        "empty\x01\x02",
        "twice\x01one\x02twice\x01two\x02",
        "REAL_TOPIC\x01elsewhere\x02REAL_QID\x01x\x02",
        "RETRY_TOPIC\x01\x02ORIGIN_MESSAGE_ID\x01\x02",
    ],
)
async def test_odd_properties_keep_no_message_from_being_given_up(odd: str, tmp_path: Path) -> None:
    """A message with odd properties can be given up: a copy needs none of them but its own."""
    async with begun(tmp_path) as (scene, peer):
        await make_topic(peer, LONGEST_TOPIC)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1", LONGEST_GROUP, LONGEST_TOPIC))
        assert await scene.stock("x", odd) == SUCCESS
        dead = await scene.to_the_dead_letters(await scene.next_of(LONGEST_TOPIC))
        kept = properties_decode(dead.properties)
        assert kept["RETRY_TOPIC"] == LONGEST_TOPIC
        assert kept["filler"] == "x"
        if "REAL" not in odd and "RETRY" not in odd:
            assert odd.encode() in bytes(dead.properties)


async def test_a_message_of_an_older_log_is_given_up_without_its_largest_property(
    tmp_path: Path,
) -> None:
    """A message from before the bound is given up without its largest property."""
    async with begun(tmp_path) as (scene, peer):
        await make_topic(peer, LONGEST_TOPIC)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1", LONGEST_GROUP, LONGEST_TOPIC))
        largest = "x" * 30_000
        full = {"a": "1", "large": largest, "KEYS": "k", "b": "y"}
        full["b"] *= PROPERTIES_BYTES_MAX - len(properties_encode(full)) + 1
        core = scene.broker.broker.core
        record = NewRecord(b"m", properties_encode(full), 1, BORN_HOST)
        draft = RecordsDraft([record], LONGEST_TOPIC, [(0, 1)], core.assignments, HOST)
        core.appender.append(draft, None, lambda _: None)
        dead = await scene.to_the_dead_letters(await scene.next_of(LONGEST_TOPIC))
        kept = properties_decode(dead.properties)
        assert kept["LEFT_OUT"] == "large"
        assert (kept["a"], kept["KEYS"], kept["b"]) == ("1", "k", full["b"])


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, PROPERTIES_BYTES_MAX), min_size=1),
    st.integers(0, 900),
)
def test_every_copy_fits(sizes: dict[str, int], more: int) -> None:
    """A copy keeps all properties that fit, and leaves out as few of the largest as needed."""
    properties = b"".join(f"{name}\x01{'v' * size}\x02".encode() for name, size in sizes.items())
    added = {"added": "w" * more}
    encoded, left_out = copied(properties, ("gone",), added)
    assert len(encoded) <= PROPERTIES_BYTES_MAX
    kept = properties_decode(encoded)
    assert kept.get("added", "") == added["added"]
    fits = len(properties) + len(properties_encode(added)) <= PROPERTIES_BYTES_MAX
    assert fits == (not left_out)
    assert {name for name in sizes if name not in kept} == set(left_out)
    if left_out:
        assert min(sizes[name] for name in left_out) >= max(
            (size for name, size in sizes.items() if name not in left_out), default=0
        )


async def test_a_message_can_be_given_up_however_many_topics_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group's retry topics are made beyond the bound of topics, but for strangers."""
    async with begun(tmp_path) as (scene, peer):
        await make_topic(peer, LONGEST_TOPIC)
        await ask(peer, RequestCode.HEART_BEAT, heartbeat("c1", LONGEST_GROUP, LONGEST_TOPIC))
        monkeypatch.setattr(limits, "TOPICS_MAX", 0)
        assert await scene.stock("x") == SUCCESS
        await scene.to_the_dead_letters(await scene.next_of(LONGEST_TOPIC))
        for topic in ("Another", "%DLQ%Nobodys"):
            assert await scene.stock("x", topic=topic) == ResponseCode.SERVICE_NOT_AVAILABLE
