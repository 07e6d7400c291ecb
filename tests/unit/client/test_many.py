"""`send_many` sends a message for each body, encoded and answered by the chunk."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from dledger.errors import BadInput
from dledger.limits import MESSAGE_BODY_BYTES_MAX
from dledger.remoting.record import Record, walk, with_queue
from mqclient import (
    BadMessage,
    ManyFailed,
    Message,
    NoRoute,
    SendError,
    SendFailed,
    SendResult,
    SendUnknown,
    limits,
)
from mqclient.compression import check_compression
from mqclient.connection.identity import UniqueKeys
from mqclient.producing.chunks.many import Chunk, SentMany, chunks
from mqclient.producing.encoding import Encoder
from mqlocal import LocalCluster, local_cluster

BODIES = [b"", b"x", bytes(5000), *(b"%d" % number * 100 for number in range(300))]


async def read(cluster: LocalCluster, count: int) -> list[tuple[int, int, int, str, bytes]]:
    """Queue, offset, position, id and body of each message, queue by queue in its order."""
    found = []
    async with cluster.consumer("C", {"T": "*"}) as consumer:
        with trio.fail_after(60):
            while len(found) < count:
                found += [
                    (m.queue_id, m.queue_offset, m.position, m.message_id, m.body)
                    for m in await consumer.poll(1000, timeout_s=5)
                ]
    return sorted(found)


def told(
    sent: Sequence[SendResult], bodies: Sequence[bytes]
) -> list[tuple[int, int, int, str, bytes]]:
    """Places and bodies of the messages, by the sender's results."""
    return sorted(
        (result.queue_id, result.queue_offset, result.position, result.message_id, body)
        for result, body in zip(sent, bodies, strict=True)
    )


@pytest.mark.parametrize("host", ["10.1.2.3", "fd00::7"])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("properties", [None, {"a": "b" * 50, "ü": "ü"}])
def test_records_are_those_of_messages_sent_one_by_one(
    host: str, compression: str | None, properties: dict[str, str] | None
) -> None:
    """Records are those of messages sent one by one, byte for byte but for the time."""
    compressor = check_compression(compression, 10)
    encoder = Encoder(UniqueKeys(host), host, compressor)
    like = Message("T", b"", tags="t", properties=properties, flag=7)

    many = encoder.encode_many(like, 3, BODIES)

    starts = walk(many.records)
    assert list(many.ends) == [*starts[1:], len(many.records)]
    for number, start, end, body in zip(many.numbers, starts, many.ends, BODIES, strict=True):
        record = many.records[start:end]
        key = f"{many.key_front}{number:012X}"
        message = Message("T", body, tags="t", properties=properties, flag=7, unique_key=key)
        _, alone = encoder.encode(message, 3)
        assert without_time(record) == without_time(alone)
        assert Record(record).fault is None
        assert Record(record).check()


def without_time(record: bytes) -> bytes:
    """A record without the time at which it was made."""
    return record[:40] + record[48:]


def test_all_records_of_a_piece_move_to_another_queue() -> None:
    """All records of a piece get another queue, and nothing else of them changes."""
    encoder = Encoder(UniqueKeys("10.1.2.3"), "10.1.2.3")
    records = encoder.encode_many(Message("T", b""), 3, BODIES).records

    moved = with_queue(records, 9)

    assert {Record(moved[start:]).queue_id for start in walk(moved)} == {9}
    assert with_queue(moved, 3) == records


def test_keys_of_many_are_never_made_again() -> None:
    """Unique keys never repeat, one by one or many at a time, also past their digits' end."""
    keys = UniqueKeys("10.1.2.3")
    made: list[str] = []
    keys._number = (1 << 48) - 5
    for _ in range(3):
        front, numbers = keys.take(3)
        made += [f"{front}{number:012X}" for number in numbers]
        made.append(keys.next())

    assert len(set(made)) == len(made)
    assert {len(key) for key in made} == {32}


def test_chunks_fit_into_batches() -> None:
    """Chunks are as long as the bounds allow; a body above the bounds is alone."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    bodies = [bytes(chance.choice((0, 1, 40, 99, 100, 300))) for _ in range(500)]

    cut = list(chunks(bodies, 10, lambda: 200, 4))

    assert [body for some in cut for body in some] == bodies
    for some, after in zip(cut, [*cut[1:], [bytes(1000)]], strict=True):
        size_bytes = sum(len(body) + 10 for body in some)
        assert len(some) == 1 or (size_bytes <= 200 and len(some) <= 4)
        assert len(some) == 4 or size_bytes + len(after[0]) + 10 > 200


async def test_results_say_where_each_message_went(autojump_clock: MockClock) -> None:
    """A result has the queue, offset, position and id under which its message is read."""
    async with local_cluster() as cluster, cluster.producer("P", batch_bytes_max=9000) as producer:
        sent = await producer.send_many("T", BODIES, tags="t")
        assert len(sent) == len(BODIES)
        assert producer.pending == 0
        assert sent[-1] == sent[len(BODIES) - 1]
        assert sent[2:4] == [sent[2], sent[3]]
        with pytest.raises(IndexError):
            sent[len(BODIES)]
        assert list(sent.failures()) == []
        assert len({result.queue_id for result in sent}) > 1

        assert await read(cluster, len(BODIES)) == told(sent, BODIES)


async def test_with_a_key_all_keep_their_order(autojump_clock: MockClock) -> None:
    """All messages with a key lie in one queue, in the order of the bodies."""
    bodies = [b"%d" % number for number in range(2000)]
    async with local_cluster() as cluster, cluster.producer("P", batch_bytes_max=9000) as producer:
        await producer.send_many("T", bodies[:1000], key="k")
        await producer.send(Message("T", b"between"), key="k")
        await producer.send_many("T", bodies[1000:], key="k")

        found = await read(cluster, len(bodies) + 1)

    assert [body for *_, body in found] == [*bodies[:1000], b"between", *bodies[1000:]]
    assert len({queue_id for queue_id, *_ in found}) == 1


async def test_a_leaders_death_doubles_and_loses_none(autojump_clock: MockClock) -> None:
    """Messages under way are sent again to the next leader, which knows what is stored."""
    bodies = [b"%d" % number for number in range(3000)]
    async with (
        local_cluster() as cluster,
        cluster.producer("P", batch_bytes_max=9000, timeout_s=60) as producer,
    ):
        await producer.send(Message("T", b"first"))
        sent: list[SendResult] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.kill)
            sent += await producer.send_many("T", bodies)

        found = [each for each in await read(cluster, len(bodies) + 1) if each[-1] != b"first"]

    assert found == told(sent, bodies)


async def test_none_is_nothing(autojump_clock: MockClock) -> None:
    """No body sends no message."""
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        assert list(await producer.send_many("T", [])) == []


@pytest.mark.parametrize(
    ("bodies", "what"),
    [
        ([b"x", "text"], "body 1 must be bytes, not str"),
        ([b"x", bytearray(3)], "body 1 must be bytes, not bytearray"),
        ([b"x", None], "body 1 must be bytes, not NoneType"),
        (b"bytes", "bodies=.* of type bytes"),
        ((b"x" for _ in range(3)), "bodies=.* of type generator"),
        ([b"", bytes(MESSAGE_BODY_BYTES_MAX + 1)], "body 1 has 4194305 bytes"),
    ],
)
async def test_what_no_record_holds_is_refused_before_any_is_sent(
    bodies: Sequence[bytes], what: str, autojump_clock: MockClock
) -> None:
    """A body that no record holds is refused before any is sent, and the first one named."""
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        with pytest.raises(BadInput, match=what):
            await producer.send_many("T", bodies)
        assert producer.pending == 0


async def test_a_queue_or_property_that_can_not_be_is_refused(autojump_clock: MockClock) -> None:
    """A wrong queue or property is refused as by `send`."""
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        with pytest.raises(BadMessage, match="no queue 77"):
            await producer.send_many("T", [b"x"], queue_id=77)
        with pytest.raises(BadMessage):
            await producer.send_many("T", [b"x"], properties={"UNIQ_KEY": "mine"})
        with pytest.raises((BadMessage, NoRoute)):
            await producer.send_many("no/topic", [b"x"])


async def test_those_without_room_fail_and_the_error_has_all_outcomes(
    autojump_clock: MockClock,
) -> None:
    """Messages beyond the producer's bound fail, and the error has every outcome."""
    async with (
        local_cluster() as cluster,
        cluster.producer("P", pending_max=100, batch_bytes_max=9000, timeout_s=2) as producer,
    ):
        await producer.send(Message("T", b"first"))
        for name in cluster.servers:
            if name != "namesrv-0":
                await cluster.kill(name)
        with pytest.raises(ManyFailed) as caught:
            await producer.send_many("T", [bytes(900)] * 500)

        error = caught.value
        failed = [number for numbers, _ in error.sent.failures() for number in numbers]
        assert failed == list(range(500))
        for number in (0, 499):
            with pytest.raises(Exception, match=r"deadline|room"):
                error.sent[number]
        assert producer.pending == 0


@pytest.mark.parametrize("error_type", [SendFailed, SendUnknown])
def test_one_unknown_outcome_makes_the_whole_indefinite(error_type: type[SendError]) -> None:
    """A single unknown outcome makes the whole error indefinite, with the number that failed."""
    known = Chunk.refused(3, SendFailed("why", "T", "a", "k"))
    other = Chunk.refused(2, error_type("no answer", "T", "a", "k"))
    with pytest.raises(ManyFailed, match="5 of 5") as caught:
        trio.run(SentMany([known, other]).wait)
    assert caught.value.definite == error_type.definite


async def test_batches_grow_with_what_is_under_way(autojump_clock: MockClock) -> None:
    """Batches of one call fill all lanes; several calls make larger batches."""
    bodies = [bytes(4096)] * 512
    async with local_cluster() as cluster, cluster.producer("P") as producer:
        alone = await producer.send_many("T", bodies)
        together: list[SentMany] = []

        async def send() -> None:
            together.append(await producer.send_many("T", bodies))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(send)

    def sizes_bytes(sent: SentMany) -> list[int]:
        return [chunk.ends[-1] for chunk in sent._chunks]

    assert max(sizes_bytes(alone)) <= limits.CHUNK_BYTES_MIN
    largest_bytes = max(max(sizes_bytes(sent)) for sent in together)
    assert 2 * limits.CHUNK_BYTES_MIN < largest_bytes <= limits.BATCH_BYTES_MAX
