"""Consuming and producing in one transaction, on a local cluster and virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
import trio

from dledger.errors import BadInput
from mqclient import (
    AcrossGroups,
    BadMessage,
    Consumer,
    Message,
    NotAssigned,
    OffsetsMoved,
    OnceTransaction,
    Producer,
    ProducerFenced,
    ReceivedMessage,
    TransactionClosed,
    TransactionUnanswered,
)
from mqlocal import LocalCluster, local_cluster

pytestmark = pytest.mark.usefixtures("autojump_clock")

PATIENCE_S = 60.0


@asynccontextmanager
async def one_group(*topics: str, queues: int = 2) -> AsyncIterator[LocalCluster]:
    """A cluster of one broker group with these topics."""
    async with local_cluster(replicas=1) as cluster:
        async with cluster.admin() as admin:
            for topic in topics:
                await admin.topics.update(topic, read_queues=queues, write_queues=queues)
        with trio.fail_after(10 * PATIENCE_S):
            yield cluster


async def fill(cluster: LocalCluster, count: int, topic: str = "In", first: int = 0) -> None:
    """Send numbered inputs to a topic."""
    async with cluster.producer("P") as producer:
        for number in range(first, first + count):
            await producer.send(Message(topic, b"%d" % number))


async def everything(cluster: LocalCluster, topic: str, wait_s: float = 3.0) -> list[bytes]:
    """Bodies of all messages in a topic."""
    found: list[bytes] = []
    async with cluster.consumer(None, {topic: "*"}, assign="all", offsets=None) as consumer:
        while messages := await consumer.poll(timeout_s=wait_s):
            found += [message.body for message in messages]
    return found


def reader(cluster: LocalCluster, group: str = "G", **settings: object) -> Consumer:
    """A consumer that can have transactions."""
    return cluster.consumer(group, {"In": "*"}, auto_commit=False, **settings)


async def taken(consumer: Consumer, count: int = 1) -> list[ReceivedMessage]:
    """At least `count` messages, by one poll or several."""
    found: list[ReceivedMessage] = []
    with trio.fail_after(PATIENCE_S):
        while len(found) < count:
            found += await consumer.poll(timeout_s=5)
    return found


async def process(
    consumer: Consumer, producer: Producer, messages: Sequence[ReceivedMessage]
) -> None:
    """An output for each, in one transaction."""
    async with consumer.transaction(producer) as transaction:
        for message in messages:
            await transaction.send(Message("Out", b"bill " + message.body))


async def send_all(consumer: Consumer, producer: Producer, outputs: Sequence[Message]) -> None:
    """Send all outputs in one transaction."""
    async with consumer.transaction(producer) as transaction:
        for output in outputs:
            await transaction.send(output)


async def committed(cluster: LocalCluster, group: str = "G") -> int:
    """How many messages a group has passed."""
    async with cluster.admin() as admin:
        rows = (await admin.groups.progress(group, "In")).queues
    return sum(row.consumer_offset for row in rows)


async def test_outputs_and_offsets_are_stored_together() -> None:
    """Outputs go to any topics, each to its result's place, and the next member goes on behind."""
    async with one_group("In", "Out", "Mails") as cluster:
        await fill(cluster, 5)
        async with cluster.producer("P", name="billing") as producer, reader(cluster) as consumer:
            messages = await taken(consumer, 5)
            async with consumer.transaction(producer) as transaction:
                for message in messages:
                    key = await transaction.send(Message("Out", message.body), key="k")
                await transaction.send(Message("Mails", b"done"), queue_id=1)
                assert await everything(cluster, "Out") == []
            results = transaction.results

            assert [result.topic for result in results] == ["Out"] * 5 + ["Mails"]
            assert results[4].message_id == key
            assert [result.queue_offset for result in results] == [0, 1, 2, 3, 4, 0]
            assert results[5].queue_id == 1
            assert len({result.position for result in results}) == 6
            assert await consumer.poll(timeout_s=2) == []
        assert await committed(cluster) == 5
        assert await everything(cluster, "Out") == [message.body for message in messages]
        async with cluster.admin() as admin:
            at = results[2]
            (shown,) = await admin.messages.by_unique_key("Out", at.message_id)
            assert shown.body == messages[2].body
            assert shown.position == at.position
        async with reader(cluster) as consumer:
            assert await consumer.poll(timeout_s=2) == []


async def test_after_an_exception_nothing_is_stored_and_messages_come_again() -> None:
    """An exception or a rollback stores nothing, and the messages come again in their order."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 3)
        async with cluster.producer("P", name="billing") as producer, reader(cluster) as consumer:
            first = await taken(consumer, 3)
            begun: list[OnceTransaction] = []

            async def half() -> None:
                async with consumer.transaction(producer) as transaction:
                    await transaction.send(Message("Out", b"half"))
                    begun.append(transaction)
                    raise ConnectionError

            with pytest.raises(ConnectionError):
                await half()
            with pytest.raises(TransactionClosed):
                await begun[0].send(Message("Out", b"late"))
            second = await taken(consumer, 3)
            async with consumer.transaction(producer) as transaction:
                await transaction.send(Message("Out", b"half"))
                transaction.rollback()
            assert await everything(cluster, "Out") == []
            third = await taken(consumer, 3)
            await process(consumer, producer, third)

        bodies = [message.body for message in first]
        assert [m.body for m in second] == [m.body for m in third] == bodies == [b"0", b"1", b"2"]
        assert await everything(cluster, "Out") == [b"bill 0", b"bill 1", b"bill 2"]
        assert await committed(cluster) == 3


async def test_who_iterates_has_a_transaction_for_each_message() -> None:
    """An iterating consumer may have a transaction for each message or for several."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 4)
        async with cluster.producer("P", name="billing") as producer, reader(cluster) as consumer:
            count = 0
            async for message in consumer:
                count += 1
                if count == 2:
                    continue
                await process(consumer, producer, [message])
                assert await committed(cluster) == count
                if count == 4:
                    break
        assert await everything(cluster, "Out") == [b"bill 0", b"bill 2", b"bill 3"]


async def test_two_members_with_the_same_messages_write_their_outputs_once() -> None:
    """The second is refused, and goes on where the first has brought the group."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 4)
        queues = await queues_of(cluster)
        async with (
            cluster.producer("P", name="one") as one,
            cluster.producer("P", name="two") as two,
            reader(cluster, assign=queues) as first,
            reader(cluster, assign=queues) as second,
        ):
            both = await taken(first, 4), await taken(second, 4)
            await process(first, one, both[0][:4])
            with pytest.raises(OffsetsMoved, match="is at 4 for group 'G', not at 0"):
                await process(second, two, both[1])
            await fill(cluster, 2, first=4)
            rest = await taken(second, 2)
            assert [message.body for message in rest] == [b"4", b"5"]
            await process(second, two, rest)
        assert await everything(cluster, "Out") == [b"bill %d" % number for number in range(6)]


async def queues_of(cluster: LocalCluster) -> list[object]:
    """Queues of the inputs, read by this consumer whoever else reads them."""
    async with cluster.producer("P") as producer:
        return [*await producer.prepare("In")]


async def test_an_older_instance_is_fenced_for_good() -> None:
    """An older instance's transactions and sends are fenced; the newer one gets its messages."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 2)
        async with (
            cluster.producer("P", name="billing") as older,
            cluster.producer("P", name="billing") as newer,
            reader(cluster) as consumer,
        ):
            await older.send(Message("Out", b"older"))
            messages = await taken(consumer, 2)
            await newer.send(Message("Out", b"newer"))
            with pytest.raises(ProducerFenced, match="has the name"):
                await process(consumer, older, messages)
            for _ in range(2):
                with pytest.raises(ProducerFenced, match="'billing'"):
                    await older.send(Message("Out", b"ghost"))
            await process(consumer, newer, await taken(consumer, 2))
        assert await everything(cluster, "Out") == [b"older", b"newer", b"bill 0", b"bill 1"]


async def test_a_named_producer_sends_as_others_do() -> None:
    """A named producer sends alone, soon and in batches, over a leader's death."""
    async with local_cluster() as cluster:
        async with cluster.producer("P", name="billing") as producer:
            first = await producer.send(Message("Out", b"0"), queue_id=0)
            pending = [
                await producer.send_soon(Message("Out", b"%d" % n), queue_id=0)
                for n in range(1, 100)
            ]
            await cluster.kill()
            results = [await each.wait() for each in pending]
            batch = await producer.send_batch([Message("Out", b"x"), Message("Out", b"y")])

            assert [result.queue_offset for result in (first, *results)] == [*range(100)]
            assert batch[1].queue_offset == batch[0].queue_offset + 1
            for delayed in (Message("Out", b"", delay_s=1), Message("Out", b"", delay_level=1)):
                with pytest.raises(BadMessage, match="a delay, by producer 'billing'"):
                    await producer.send(delayed)
            with pytest.raises(BadMessage, match="no acknowledgement"):
                producer.send_oneway(Message("Out", b""))
        assert len(await everything(cluster, "Out")) == 102


async def test_one_producer_may_have_many_consumers() -> None:
    """A producer serves a dozen open consumers with transactions; closed ones don't count."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 14)
        async with cluster.producer("P", name="billing") as producer:
            for number in range(14):
                async with reader(cluster) as consumer:
                    await process(consumer, producer, await consumer.poll(1, timeout_s=60))
                assert await committed(cluster) == number + 1
            named = producer.named
            assert named is not None
            assert len({named.stream_of(f"c{number}") for number in range(12)}) == 12
            with pytest.raises(BadMessage, match="writes for 12 consumers already"):
                named.stream_of("one more")
            named.leave("c3")
            named.stream_of("one more")


async def test_what_can_t_be_one_entry_is_refused_with_the_reason() -> None:
    """Inputs or outputs of several broker groups are refused, and the messages come again."""
    async with local_cluster(replicas=1, groups=2) as cluster:
        async with cluster.admin() as admin:
            await admin.topics.update("In", read_queues=1, write_queues=1)
            await admin.topics.update("Away", broker=cluster.groups[1])
        await fill(cluster, 8)
        async with cluster.producer("P", name="billing") as producer, reader(cluster) as consumer:
            messages = await taken(consumer, 8)
            assert {message.broker_name for message in messages} == {*cluster.groups}
            with pytest.raises(AcrossGroups, match=r"broker-a, broker-b .*one_group=True"):
                await process(consumer, producer, messages)
            done = 0
            while done < 8:
                some = await consumer.poll(one_group=True, timeout_s=5)
                if not some:
                    continue
                assert len({message.broker_name for message in some}) == 1
                if some[0].broker_name == cluster.groups[0] and not done:
                    with pytest.raises(AcrossGroups, match=r"'Away' has queues in broker-b"):
                        async with consumer.transaction(producer) as transaction:
                            await transaction.send(Message("Away", b"x"))
                    some = await consumer.poll(one_group=True, timeout_s=5)
                await process(consumer, producer, some)
                done += len(some)
        assert sorted(await everything(cluster, "Out")) == [b"bill %d" % n for n in range(8)]


async def test_bad_uses_name_the_cure() -> None:
    """A wrong use of transactions is an error that says what to change."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 1)
        async with (
            cluster.producer("P") as nameless,
            cluster.producer("P", name="billing") as producer,
            cluster.consumer("A", {"In": "*"}) as automatic,
            cluster.consumer(
                None, {"In": "*"}, assign="all", offsets=None, auto_commit=False
            ) as own,
            reader(cluster) as consumer,
        ):
            for case, words in (
                (automatic.transaction(producer), "auto_commit=False"),
                (own.transaction(producer), "offsets='broker'"),
                (consumer.transaction(nameless), "name="),
            ):
                with pytest.raises(BadInput, match=words):
                    async with case:
                        pass
            with pytest.raises(BadMessage, match="with a delay"):
                async with consumer.transaction(producer) as transaction:
                    await transaction.send(Message("Out", b"", delay_s=1))
            large = Message("Out", bytes(1 << 20))
            with pytest.raises(BadMessage, match="poll fewer"):
                await send_all(consumer, producer, [large] * 9)

            async def handler(message: ReceivedMessage) -> None:
                await process(consumer, producer, [message])

            with pytest.raises(BadInput, match="within a handler"):
                await consumer.run(handler, on_error="raise")
        with pytest.raises(BadInput, match="producer's name"):
            Producer(cluster.namesrv_addr, name="a b")
        with pytest.raises(BadInput, match="at_least_once"):
            Producer(cluster.namesrv_addr, name="billing", at_least_once=True)


async def test_a_message_that_can_t_be_handled_is_sent_back_within_it() -> None:
    """A message that is nacked in a transaction comes again, in another transaction."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 3)
        async with cluster.producer("P", name="billing") as producer, reader(cluster) as consumer:
            messages = await taken(consumer, 3)
            async with consumer.transaction(producer) as transaction:
                await transaction.send(Message("Out", b"bill 0"))
                await consumer.nack(messages[1], delay_s=1)
                await transaction.send(Message("Out", b"bill 2"))
            (again,) = await taken(consumer, 1)
            assert (again.body, again.reconsume_times) == (b"1", 1)
            await process(consumer, producer, [again])
            assert await consumer.poll(timeout_s=3) == []
        assert await everything(cluster, "Out") == [b"bill 0", b"bill 2", b"bill 1"]


async def test_a_queue_that_was_lost_stores_nothing() -> None:
    """A transaction whose queue was lost stores nothing: the new reader's outputs count."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 2)
        async with (
            cluster.producer("P", name="billing") as producer,
            reader(cluster, revoke_timeout_s=1) as consumer,
        ):
            messages = await taken(consumer, 2)

            async def lose_it_meanwhile() -> None:
                async with consumer.transaction(producer) as transaction:
                    await transaction.send(Message("Out", messages[0].body))
                    (fetcher,) = [
                        each for queue, each in consumer._readings().items() if queue.topic == "In"
                    ]
                    del consumer._assigned().fetchers[fetcher.progress.queue]
                    fetcher.progress.revoke()

            with pytest.raises(NotAssigned, match="Nothing was stored"):
                await lose_it_meanwhile()
            assert await everything(cluster, "Out") == []
            assert [m.body for m in await taken(consumer, 2)] == [b"0", b"1"]


async def test_an_ordered_member_moves_its_own_queues() -> None:
    """An ordered consumer's transaction has the token of its lock."""
    async with one_group("In", "Out", queues=1) as cluster:
        await fill(cluster, 2)
        async with (
            cluster.producer("P", name="billing") as producer,
            reader(cluster, ordered=True) as consumer,
        ):
            await process(consumer, producer, await taken(consumer, 2))
            assert await committed(cluster) == 2


async def test_what_was_not_answered_is_stored_or_comes_again() -> None:
    """Outputs without an answer are stored or their inputs come again, never both."""
    async with local_cluster() as cluster:
        async with cluster.admin() as admin:
            for topic in ("In", "Out"):
                await admin.topics.update(topic, read_queues=1, write_queues=1)
        await fill(cluster, 6)
        leader = await cluster.leader()
        others = [name for name in cluster.servers if "broker" in name and name != leader]
        async with cluster.producer("P", name="billing") as producer, reader(cluster) as consumer:
            done, unsure = 0, 0
            while await committed(cluster) < 6:
                messages = await consumer.poll(2, timeout_s=5)
                if done == 1 and not unsure:
                    for name in others:
                        await cluster.kill(name)
                try:
                    async with consumer.transaction(producer, timeout_s=3) as transaction:
                        for message in messages:
                            await transaction.send(Message("Out", b"bill " + message.body))
                except TransactionUnanswered:
                    unsure += 1
                    for name in others:
                        await cluster.restart(name)
                except OffsetsMoved:
                    pass  # it was stored after all
                else:
                    done += 1
        assert unsure == 1
        assert await everything(cluster, "Out") == [b"bill %d" % number for number in range(6)]


async def test_members_come_and_go_while_a_leader_dies() -> None:
    """An input has one output while members come and go and a leader dies."""
    async with local_cluster() as cluster:
        async with cluster.admin() as admin:
            for topic in ("In", "Out"):
                await admin.topics.update(topic, read_queues=4, write_queues=4)
        sent, done = 0, trio.Event()

        async def send() -> None:
            nonlocal sent
            async with cluster.producer("P") as producer:
                while not done.is_set():
                    await producer.send(Message("In", b"%d" % sent), timeout_s=30)
                    sent += 1
                    await anyio.sleep(0.05)

        async def member(number: int) -> None:
            life = 0
            while not finished():
                life += 1
                async with (
                    cluster.producer("P", name=f"member-{number}") as producer,
                    reader(cluster) as consumer,
                ):
                    with trio.move_on_after(0.7 + number / 2 if not done.is_set() else 1e9):
                        while not finished():
                            messages = await consumer.poll(7, timeout_s=0.5)
                            try:
                                await process(consumer, producer, messages)
                            except (OffsetsMoved, NotAssigned):
                                refused[number] += 1
                            else:
                                outputs.update(message.body for message in messages)

        def finished() -> bool:
            return done.is_set() and len(outputs) == sent

        outputs: set[bytes] = set()
        refused = Counter[int]()
        with trio.fail_after(600):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                for number in range(2):
                    nursery.start_soon(member, number)
                await anyio.sleep(1)
                await cluster.kill()
                await anyio.sleep(1)
                done.set()
        found = await everything(cluster, "Out")
        print(f"{sent} inputs, refused {dict(refused)}")
        assert Counter(found) == Counter(b"bill %d" % number for number in range(sent))
        assert await committed(cluster) == sent
