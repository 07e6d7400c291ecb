"""A worker process: `python -m mqchaos.run.load.work TASK`, one producer or one consumer of a run.

It uses the client as any application would, and nothing else of the system. What the application
would see is what the history says: an exception that reaches this code is a `fail`.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from dledger.checksum import crc32
from dledger.errors import DledgerError
from dledger.observe import get_logger
from dledger.program.logs import configure_logging
from mqchaos import limits
from mqchaos.history.events import Commit, End, HistoryWriter, Meta, Rebalance, Send
from mqchaos.run.load.forking import end_of_stdin, forked
from mqchaos.run.load.noting import acknowledged, delivered, popped
from mqchaos.run.load.popping import PopWork
from mqchaos.run.load.priorities import stay_s
from mqchaos.run.load.producing import PRODUCERS, ProducerWork, producer_of
from mqchaos.run.load.workload import Consume, Produce, Progress, output_key, outputs_of
from mqclient import (
    Consumer,
    Message,
    MessageQueue,
    PopConsumer,
    PoppedMessage,
    Producer,
    ReceivedMessage,
    blocking,
    run_until_signal,
)
from mqclient import Rebalance as RebalanceNotice
from mqclient.limits import DRAIN_S

NotedT = TypeVar("NotedT")


def consumer_of(task: Consume, rebalanced: Callable[[RebalanceNotice], None]) -> Consumer:
    """The client of a task."""
    return Consumer(
        namesrv_addr=task.namesrv_addr,
        group=task.group,
        subscriptions={task.topic: "*"},
        assign="averaged" if task.offsets is None else "all",
        ordered=task.ordered,
        consume_from=task.beginning,
        offsets="broker" if task.offsets is None else Path(task.offsets),
        auto_commit=task.handles,
        on_rebalance=rebalanced,
        **task.identity.access(),
    )


class Made:
    """A consumer that a program has made before it forks; `hears`: whoever opens it there."""

    def __init__(self, task: Consume) -> None:
        self.hears: Callable[[RebalanceNotice], None] | None = None
        self.consumer = consumer_of(task, self._heard)

    def _heard(self, notice: RebalanceNotice) -> None:
        if self.hears is not None:
            self.hears(notice)


class ConsumerWork:
    """A member of the consumer group: takes what it is given, and commits twice a second."""

    def __init__(self, task: Consume, history: HistoryWriter, made: Made | None = None) -> None:
        """A consumer that was `made` before is opened, else one of its own for each stay."""
        self._task = task
        self._history = history
        self._made = made
        self.progress = Progress()

    async def run(self, told_to_stop: trio.Event) -> None:
        """Consume until told to stop, in as many stays as that takes."""
        while not told_to_stop.is_set():
            if self._task.away and not stay_s(time.monotonic()):
                await trio.sleep(limits.PROGRESS_INTERVAL_S)
            else:
                await self._stay(told_to_stop)

    async def _stay(self, told_to_stop: trio.Event) -> None:
        """Join the group and read; then commit what was delivered, and leave."""
        async with self._consumer() as consumer:
            now = trio.current_time()
            next_commit = now + limits.COMMIT_INTERVAL_S
            until = math.inf if self._task.stay_s is None else now + self._task.stay_s
            if self._task.away:
                until = now + stay_s(time.monotonic())
            while not told_to_stop.is_set() and now < until:
                for message in await consumer.poll(
                    max_messages=1024, timeout_s=limits.PROGRESS_INTERVAL_S
                ):
                    self._delivered(message)
                now = trio.current_time()
                if now >= next_commit:
                    await self._commit(consumer)
                    next_commit = now + limits.COMMIT_INTERVAL_S
            await self._commit(consumer)
        self._holds([])

    def _consumer(self) -> Consumer:
        if self._made is None:
            return consumer_of(self._task, self._rebalanced)
        self._made.hears = self._rebalanced
        return self._made.consumer

    def _delivered(self, message: ReceivedMessage) -> None:
        self._note_delivery(message)
        self._through_with(message)

    def _through_with(self, message: ReceivedMessage) -> None:
        self.progress.delivered += 1
        queue = f"{message.broker_name}/{message.queue_id}"
        self.progress.reach(queue, message.queue_offset + 1)

    def _note_delivery(self, message: ReceivedMessage) -> None:
        self._history.write(delivered(self._task.client, self._task.reader, message))

    async def _commit(self, consumer: Consumer) -> None:
        began = time.monotonic_ns()
        self._committed(await consumer.commit(), began)

    def _committed(self, offsets: Mapping[MessageQueue, int], began: int) -> None:
        for queue, offset in offsets.items():
            self._history.write(
                Commit(
                    time.monotonic_ns(),
                    self._task.client,
                    self._task.reader,
                    queue.topic,
                    queue.broker_name,
                    queue.queue_id,
                    offset,
                    began,
                )
            )

    def _rebalanced(self, notice: RebalanceNotice) -> None:
        self._holds([(queue.broker_name, queue.queue_id) for queue in notice.queues])

    def _holds(self, queues: list[tuple[str, int]]) -> None:
        now = time.monotonic_ns()
        task = self._task
        self._history.write(Rebalance(now, task.client, task.reader, task.topic, queues))


class OnceWork(ConsumerWork):
    """A member that writes an output for each message, together with the group's offset.

    An output has the same unique key whoever writes it: the judge finds it twice in a log, if it
    is. An attempt that failed is not noted as failed, as another member may have stored the output.
    """

    async def run(self, told_to_stop: trio.Event) -> None:
        """Consume and write outputs until told to stop. The history is about the outputs, too."""
        outputs = outputs_of(self._task.topic)
        inputs, group = self._task.topic, self._task.group
        self._history.write(Meta(time.monotonic_ns(), 0, "", outputs, True, {}, inputs, group))
        async with (
            Producer(
                self._task.namesrv_addr,
                f"{self._task.group}-outputs",
                name=self._task.once,
                **self._task.identity.access(),
            ) as producer,
            self._consumer() as consumer,
        ):
            while not told_to_stop.is_set():
                messages = await consumer.poll(
                    64, timeout_s=limits.PROGRESS_INTERVAL_S, one_group=True
                )
                for message in messages:
                    self._note_delivery(message)
                try:
                    await self._process(consumer, producer, messages)
                except DledgerError as error:
                    get_logger(__name__).info("transaction not stored", reason=str(error))

    async def _process(
        self, consumer: Consumer, producer: Producer, messages: Sequence[ReceivedMessage]
    ) -> None:
        outputs, began = outputs_of(self._task.topic), time.monotonic_ns()
        async with consumer.transaction(
            producer, timeout_s=limits.RANDOM_SEND_TIMEOUT_S
        ) as transaction:
            for message in messages:
                output = Message(outputs, message.body, unique_key=output_key(message.message_id))
                crc, size = crc32(output.body), len(output.body)
                now, client = time.monotonic_ns(), self._task.client
                self._history.write(Send(now, client, output.unique_key, outputs, "", crc, size))
                await transaction.send(output, key=message.keys)
        for result in transaction.results:
            self._history.write(acknowledged(self._task.client, result))
        ends: dict[MessageQueue, int] = {}
        for message in messages:
            self._through_with(message)
            ends[message.queue] = max(message.queue_offset + 1, ends.get(message.queue, 0))
        self._committed(ends, began)


class HandlingWork(ConsumerWork):
    """A member that has a handler called until its process is told to stop, and then drains.

    A message counts as delivered when its handler is through: one that was cut off is an error.
    """

    async def run(self, told_to_stop: trio.Event) -> None:
        """Work until a signal, or until told to stop."""
        self._begun = 0
        self._holds([])  # from here on it is up
        async with self._member() as consumer, trio.open_nursery() as nursery:
            nursery.start_soon(_drain_at, told_to_stop, consumer)
            await run_until_signal(
                lambda: consumer.run(self._handle, limits.HANDLED_AT_ONCE), consumer
            )
            nursery.cancel_scope.cancel()
        self._holds([])
        self._check_cut_off()

    def _member(self) -> Consumer | PopConsumer:
        task = self._task
        if task.members:
            return PopConsumer(
                task.namesrv_addr, task.group, {task.topic: "*"}, **task.identity.access()
            )
        return self._consumer()

    async def _handle(self, message: ReceivedMessage) -> None:
        self._begins(message)
        await trio.sleep(limits.HANDLING_S[message.queue_offset % len(limits.HANDLING_S)])
        self._through_with(message)

    def _begins(self, message: ReceivedMessage) -> None:
        self._begun += 1
        if isinstance(message, PoppedMessage):
            self._history.write(popped(self._task.client, self._task.reader, message))
        else:
            self._note_delivery(message)

    def _check_cut_off(self) -> None:
        if self._begun != self.progress.delivered:
            cut_off = self._begun - self.progress.delivered
            raise RuntimeError(f"{cut_off} of {self._begun} handlers were cut off")


class ThreadsWork(HandlingWork):
    """Handling by a blocking consumer, whose handlers work in threads."""

    async def run(self, told_to_stop: trio.Event) -> None:
        """Work until a signal, or until told to stop. What is noted is noted in this thread."""
        self._begun, self._token = 0, trio.lowlevel.current_trio_token()
        self._holds([])
        soon = self._token.run_sync_soon
        consumer = blocking.Consumer(
            self._task.namesrv_addr,
            self._task.group,
            {self._task.topic: "*"},
            on_rebalance=lambda change: soon(partial(self._rebalanced, change)),
            **self._task.identity.access(),
        )
        in_thread = trio.to_thread.run_sync
        run = partial(in_thread, consumer.run, self._handle_here, limits.HANDLED_AT_ONCE)
        await in_thread(consumer.open)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_drain_at, told_to_stop, _InThread(consumer))
            await run_until_signal(run, _InThread(consumer))
            nursery.cancel_scope.cancel()
        await in_thread(consumer.close)
        self._holds([])
        self._check_cut_off()

    def _handle_here(self, message: ReceivedMessage) -> None:
        self._noted(self._begins, message)
        time.sleep(limits.HANDLING_S[message.queue_offset % len(limits.HANDLING_S)])
        self._noted(self._through_with, message)

    def _noted(self, note: Callable[[NotedT], None], noted: NotedT) -> None:
        trio.from_thread.run_sync(note, noted, trio_token=self._token)


class _InThread:
    """A blocking consumer, for `run_until_signal`."""

    def __init__(self, consumer: blocking.Consumer) -> None:
        self._consumer = consumer

    async def drain(self, timeout_s: float = DRAIN_S) -> bool:
        """Drain it without standing in the way of its handlers."""
        return await trio.to_thread.run_sync(self._consumer.drain, timeout_s)


async def _drain_at(told_to_stop: trio.Event, consumer: Consumer | PopConsumer | _InThread) -> None:
    await told_to_stop.wait()
    await consumer.drain()


async def _watch_stdin(told_to_stop: trio.Event) -> None:
    """The harness closes our standard input when we are to finish."""
    await end_of_stdin()
    told_to_stop.set()


async def _tell(progress: Progress, history: HistoryWriter) -> None:
    """Print progress and flush the history, regularly."""
    encode = msgspec.json.Encoder().encode
    flushed = trio.current_time()
    while True:
        sys.stdout.buffer.write(encode(progress) + b"\n")
        sys.stdout.buffer.flush()
        if trio.current_time() - flushed > limits.HISTORY_FLUSH_S:
            history.flush()
            flushed = trio.current_time()
        await trio.sleep(limits.PROGRESS_INTERVAL_S)


async def _work(
    task: Produce | Consume, begin: Callable[[HistoryWriter], ProducerWork | ConsumerWork | PopWork]
) -> None:
    """Do a task, in a history of its own."""
    with HistoryWriter(
        Path(task.history), at_once=task.at_once, part_bytes=task.part_bytes
    ) as history:
        work = begin(history)
        told_to_stop = trio.Event()
        run: Callable[[trio.Event], Awaitable[None]] = work.run
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_stdin, told_to_stop)
            nursery.start_soon(_tell, work.progress, history)
            await run(told_to_stop)
            nursery.cancel_scope.cancel()
        history.write(End(time.monotonic_ns()))
        print(msgspec.json.encode(work.progress).decode(), flush=True)


async def _produce(task: Produce, made: Producer | None = None) -> None:
    await _work(task, lambda history: PRODUCERS[task.sends](task, history, made))


async def _consume(task: Consume, made: Made | None = None) -> None:
    def begin(history: HistoryWriter) -> ConsumerWork | PopWork:
        if task.members and not task.handles:
            return PopWork(task, history)
        if task.handles:
            return (ThreadsWork if task.threads else HandlingWork)(task, history, made)
        return (ConsumerWork if task.once is None else OnceWork)(task, history, made)

    await _work(task, begin)


def main() -> None:
    """Do the task in the first argument. Standard output is for progress alone."""
    configure_logging("json", "info")
    task = msgspec.json.decode(sys.argv[1], type=Produce | Consume)
    if isinstance(task, Consume) and task.waits and not os.read(sys.stdin.fileno(), 1):
        return  # told to finish before it was to begin
    if isinstance(task, Produce):
        producer = producer_of(task) if task.forks else None
        trio.run(_produce, forked(task) if task.forks else task, producer)
    else:
        made = Made(task) if task.forks else None
        trio.run(_consume, forked(task) if task.forks else task, made)


if __name__ == "__main__":
    main()
