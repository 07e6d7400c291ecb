"""The producers of a run: what they send, and what they write down of it.

They use the client as any application would, and nothing else of the system. What the application
would see is what the history says: an exception that reaches this code is a `fail`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio

from dledger.errors import DledgerError
from mqchaos import limits
from mqchaos.history.events import Again, Fail, HistoryWriter, Resolve
from mqchaos.run.load.noting import acknowledged, sent
from mqchaos.run.load.priorities import priority_of
from mqchaos.run.load.workload import (
    Produce,
    Progress,
    Sends,
    delay_of,
    ending,
    ends_itself,
    lifetime_of,
    number_of,
    read_lines,
    unique_key,
)
from mqclient import Decision, Message, PendingSend, Producer, ReceivedMessage, SendResult
from mqclient.producing.waiting.transactions import Checker


def producer_of(task: Produce, checker: Checker | None = None) -> Producer:
    """The client of a task."""
    return Producer(
        namesrv_addr=task.namesrv_addr,
        group=f"{task.run}-PG",
        timeout_s=task.send_timeout_s,
        checker=checker,
        **task.identity.access(),
    )


class ProducerWork:
    """Sends lines at a steady rate, with many sends in flight, and records each one's outcome."""

    #: Whether messages wait elsewhere before they come into their topic.
    waits = False

    def __init__(self, task: Produce, history: HistoryWriter, made: Producer | None = None) -> None:
        """A producer that was `made` before is opened, else one of its own."""
        self._task = task
        self._history = history
        self._made = made
        self._lines = read_lines(Path(task.lines))
        self._room = trio.Semaphore(limits.SENDS_IN_FLIGHT_MAX)
        self.progress = Progress()

    def checker(self) -> Checker | None:
        """The answerer of brokers' questions about transactions; None if there are none."""
        return None

    def prepared(self, message: Message, number: int) -> int | None:
        """Change the n-th message before it is sent; after how many ns it is due, if it waits."""
        return None

    def ending(self, number: int) -> str | None:
        """How the n-th message's transaction is to end, if it is in one."""
        return None

    def lifetime(self, message: Message, number: int) -> int | None:
        """Give the n-th message an end of its own; after how many ns that is."""
        return None

    async def run(self, told_to_stop: trio.Event) -> None:
        """Send until all messages have an outcome, or until told to stop and those begun have
        one."""
        task = self._task
        async with self._made or producer_of(task, self.checker()) as producer:
            await self._find_topic(producer, told_to_stop)
            started = trio.current_time()
            while not told_to_stop.is_set():
                due = int((trio.current_time() - started) * task.rate_per_s) + 1
                due = due if task.messages is None else min(due, task.messages)
                while self.progress.sent < due and not told_to_stop.is_set():
                    await self._room.acquire()
                    await self._send(producer, self.progress.sent)
                if self.progress.sent == task.messages:
                    break
                await trio.sleep(limits.PACE_S)
            await self.finish(producer)

    async def _find_topic(self, producer: Producer, told_to_stop: trio.Event) -> None:
        """Wait until a name server knows the topic, as a program does that starts when none does.

        Those that come for others that were killed may.
        """
        while not told_to_stop.is_set():
            try:
                await producer.prepare(self._task.topic)
            except DledgerError:
                await trio.sleep(limits.PROGRESS_INTERVAL_S)
            else:
                return

    async def finish(self, producer: Producer) -> None:
        """Wait until all that was begun has an outcome."""
        await producer.flush()
        for _ in range(limits.SENDS_IN_FLIGHT_MAX):
            await self._room.acquire()

    async def _send(self, producer: Producer, number: int) -> None:
        task = self._task
        index = (task.index + number * task.producers) % len(self._lines)
        body, key = self._body(index), f"line-{index}"
        own = {"number": str(number), "sender": task.client}
        message = Message(task.topic, body, key, f"tag-{number % 3}", own, flag=number % 5)
        message.unique_key = unique_key(task.run, task.client, number)
        self.progress.sent += 1
        delay_ns, life_ns = self.prepared(message, number), self.lifetime(message, number)
        now = time.monotonic_ns()
        self._history.write(
            sent(
                now,
                task.client,
                message,
                message.unique_key,
                None if delay_ns is None else now + delay_ns,
                self.ending(number),
                None if life_ns is None else now + life_ns,
            )
        )
        await self._hand_over(producer, message, key if task.keyed else None)

    def _body(self, index: int) -> bytes:
        if self._task.lines_each == 1:
            return self._lines[index]
        return b"\n".join(self._lines[index : index + self._task.lines_each])

    async def _hand_over(self, producer: Producer, message: Message, key: str | None) -> None:
        try:
            pending = await producer.send_soon(message, key=key)
        except DledgerError as error:
            self._failed(message.unique_key, error)
            return
        pending.add_callback(self._done)

    def _done(self, pending: PendingSend) -> None:
        unique = pending.unique_key
        try:
            result = pending.result()
        except DledgerError as error:
            self._failed(unique, error)
            return
        self._room.release()
        self._acked(result)

    def _acked(self, result: SendResult) -> None:
        self.progress.acked += 1
        if not self.waits:
            queue = f"{result.broker_name}/{result.queue_id}"
            self.progress.reach(queue, result.queue_offset + 1)
        self._history.write(acknowledged(self._task.client, result, waits=self.waits))

    def _failed(self, unique: str, error: DledgerError) -> None:
        self._room.release()
        self.progress.failed += 1
        reason = f"{type(error).__name__}: {error}"
        self.progress.error = self.progress.error or reason
        now = time.monotonic_ns()
        self._history.write(Fail(now, self._task.client, unique, error.definite, reason))


class EqualWork(ProducerWork):
    """Sends what others send, too: the unique key, which its producer makes, tells it apart.

    Only the producer knows that key, once it has the message: so the send is noted then, as of the
    moment before. Keys change now and then, for all senders at about the same time.
    """

    async def _send(self, producer: Producer, number: int) -> None:
        task, key = self._task, f"key-{number // limits.EQUAL_IN_A_ROW}"
        message = Message(task.topic, self._body(0), key)
        self.progress.sent += 1
        now = time.monotonic_ns()
        pending = producer.send_nowait(message, key=key if task.keyed else None)
        self._history.write(sent(now, task.client, message, pending.unique_key))
        pending.add_callback(self._done)


class FewWork(ProducerWork):
    """Sends a few lines, and so a few keys, again and again."""

    def __init__(self, task: Produce, history: HistoryWriter, made: Producer | None = None) -> None:
        super().__init__(task, history, made)
        self._lines = self._lines[: limits.FEW_KEYS]


class PatientWork(ProducerWork):
    """Sends what was refused again until it is stored, as a program does while its topic is
    read-only or gone for a moment."""

    async def run(self, told_to_stop: trio.Event) -> None:
        """Send as others do; the nursery is that of the sends under way."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await super().run(told_to_stop)

    async def _hand_over(self, producer: Producer, message: Message, key: str | None) -> None:
        self._nursery.start_soon(self._send_until_stored, producer, message, key)

    async def _send_until_stored(
        self, producer: Producer, message: Message, key: str | None
    ) -> None:
        while True:
            try:
                result = await producer.send(message, key=key)
            except DledgerError as error:
                self.progress.error = self.progress.error or str(error)
                again = Again(time.monotonic_ns(), self._task.client, message.unique_key)
                self._history.write(again)
                await trio.sleep(limits.SENT_AGAIN_S)
            else:
                break
        self._room.release()
        self._acked(result)


class DelayedWork(ProducerWork):
    """Sends messages that wait half a second to four, and stays until all were due."""

    waits = True

    def prepared(self, message: Message, number: int) -> int | None:
        """Ask for the delay; returns its length in ns."""
        message.delay_level, message.delay_s = delay_of(number)
        return int((message.delay_s or limits.DELAY_LEVEL_1_S) * limits.NS_PER_S)

    async def run(self, told_to_stop: trio.Event) -> None:
        """Send as others do; then wait until the last one was due."""
        await super().run(told_to_stop)
        await trio.sleep(max(limits.DELAYS_S) + limits.DELAY_MARGIN_S)


class FleetingWork(ProducerWork):
    """Sends messages of which each tenth is to be delivered soon, or never."""

    def lifetime(self, message: Message, number: int) -> int | None:
        """Half a second, or two."""
        ttl_s = lifetime_of(number)
        if ttl_s is None:
            return None
        message.ttl_s = ttl_s
        return int(ttl_s * limits.NS_PER_S)


class PriorityWork(ProducerWork):
    """Sends messages of all priorities in turn."""

    def prepared(self, message: Message, number: int) -> int | None:
        """Prepare nothing: the message does not wait."""
        message.priority = priority_of(number)
        return None


class PartsWork(ProducerWork):
    """Sends now and then a message whose body is too large for a record, beside the others."""

    async def run(self, told_to_stop: trio.Event) -> None:
        """Send as others do; the nursery is that of the large messages under way."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await super().run(told_to_stop)

    def _body(self, index: int) -> bytes:
        line = super()._body(index)
        if self.progress.sent % limits.PARTS_EVERY:
            return line
        return (line + b"\n") * (limits.PARTS_BODY_BYTES // (len(line) + 1) + 1)

    async def _hand_over(self, producer: Producer, message: Message, key: str | None) -> None:
        if len(message.body) > limits.PARTS_BODY_BYTES:
            self._nursery.start_soon(self._send_parts, producer, message, key)
        else:
            await super()._hand_over(producer, message, key)

    async def _send_parts(self, producer: Producer, message: Message, key: str | None) -> None:
        timeout_s = self._task.send_timeout_s
        try:
            result = await producer.send_large(message, key=key, timeout_s=timeout_s)
        except DledgerError as error:
            self._failed(message.unique_key, error)
            return
        self._room.release()
        self._acked(result)


class TransactionalWork(ProducerWork):
    """Sends messages in transactions: most it ends itself, of the others the broker asks it."""

    waits = True

    async def run(self, told_to_stop: trio.Event) -> None:
        """Send as others do; the nursery is that of the transactions under way."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await super().run(told_to_stop)

    async def finish(self, producer: Producer) -> None:
        """Wait for all that was begun, and stay to be asked."""
        await super().finish(producer)
        await trio.sleep(limits.ASKED_FOR_S)

    def checker(self) -> Checker | None:
        """The checker of transactions, which decides by a transaction's number."""
        return self._check

    def ending(self, number: int) -> str | None:
        """The outcome follows from the number."""
        return ending(number)

    def _check(self, message: ReceivedMessage) -> Decision:
        committed = ending(number_of(message.message_id)) == "commit"
        return Decision.COMMIT if committed else Decision.ROLLBACK

    async def _hand_over(self, producer: Producer, message: Message, key: str | None) -> None:
        self._nursery.start_soon(self._transaction, producer, message, key)

    async def _transaction(self, producer: Producer, message: Message, key: str | None) -> None:
        number = number_of(message.unique_key)
        acked = False
        try:
            async with producer.transaction(message, key=key) as transaction:
                acked = True
                self._acked(transaction.sent)
                if not ends_itself(number):
                    raise Forgotten
                end = transaction.commit if ending(number) == "commit" else transaction.rollback
                await end()
        except Forgotten:
            return
        except DledgerError as error:
            if not acked:
                self._failed(message.unique_key, error)
            return
        finally:
            if acked:
                self._room.release()
        now, client = time.monotonic_ns(), self._task.client
        self._history.write(Resolve(now, client, message.unique_key, ending(number)))


class Forgotten(Exception):
    """The application died between its half message and its word."""


PRODUCERS: Final[Mapping[Sends, type[ProducerWork]]] = {
    "plain": ProducerWork,
    "equal": EqualWork,
    "few": FewWork,
    "patient": PatientWork,
    "delayed": DelayedWork,
    "transactional": TransactionalWork,
    "fleeting": FleetingWork,
    "parts": PartsWork,
    "priority": PriorityWork,
}
