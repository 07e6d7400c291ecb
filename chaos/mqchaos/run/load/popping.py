"""Members of a group that pops, many in one process: more of them than there are queues.

What becomes of a message follows from its number: most are acknowledged; some are forgotten at
first, so that their time runs out, or asked for again; some are given up, to the dead letters. The
process may be killed in the middle: what its members had then comes to others. Of a topic of
priorities all members take naps at the same time, and then a few messages at a time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import trio

from dledger.errors import DledgerError
from dledger.observe import get_logger
from mqchaos.history.events import HistoryWriter, Settle
from mqchaos.limits import (
    POP_AGAIN_S,
    POP_AT_ONCE_MAX,
    POP_INVISIBLE_S,
    PRIORITY_AT_ONCE_MAX,
    PROGRESS_INTERVAL_S,
)
from mqchaos.run.load.noting import popped
from mqchaos.run.load.priorities import nap_s
from mqchaos.run.load.workload import Consume, Fate, Progress, fate_of, number_of
from mqclient import PopConsumer, PoppedMessage

log = get_logger(__name__)


class PopWork:
    """The members of one process."""

    def __init__(self, task: Consume, history: HistoryWriter) -> None:
        self._task = task
        self._history = history
        self.progress = Progress()

    async def run(self, told_to_stop: trio.Event) -> None:
        """Pop as all members of the task until told to stop."""
        async with trio.open_nursery() as nursery:
            for number in range(self._task.members):
                nursery.start_soon(self._member, f"{self._task.client}.{number}", told_to_stop)

    async def _member(self, client: str, told_to_stop: trio.Event) -> None:
        task = self._task
        at_once_max = PRIORITY_AT_ONCE_MAX if task.naps else POP_AT_ONCE_MAX
        async with PopConsumer(
            task.namesrv_addr,
            task.group,
            {task.topic: "*"},
            invisible_s=POP_INVISIBLE_S,
            **task.identity.access(),
        ) as consumer:
            while not told_to_stop.is_set():
                if task.naps:
                    await trio.sleep(nap_s(time.monotonic()))
                messages = await consumer.poll(at_once_max, PROGRESS_INTERVAL_S)
                for message in messages:
                    self._history.write(popped(client, task.reader, message))
                    self.progress.delivered += 1
                try:
                    await self._settle(client, consumer, messages)
                except DledgerError as error:
                    # The messages come again, unless the answer alone was lost.
                    log.info("not settled", client=client, reason=str(error))

    async def _settle(
        self, client: str, consumer: PopConsumer, messages: Sequence[PoppedMessage]
    ) -> None:
        fates: dict[Fate, list[PoppedMessage]] = {"done": [], "left": [], "again": [], "dead": []}
        for message in messages:
            fates[fate_of(number_of(message.message_id), message.deliveries)].append(message)
        if fates["done"]:
            late = await consumer.ack(*fates["done"])
            self._settled(client, fates["done"], "ack", counted=not late)
        for message in fates["again"]:
            await consumer.nack(message, delay_s=POP_AGAIN_S)
        for message in fates["dead"]:
            counted = await consumer.nack(message, -1)
            self._settled(client, [message], "dead", counted=counted)

    def _settled(
        self, client: str, messages: Sequence[PoppedMessage], how: str, *, counted: bool
    ) -> None:
        now = time.monotonic_ns()
        for message in messages:
            place = (message.topic, message.broker_name, message.queue_id, message.queue_offset)
            named = (message.message_id, message.pop_time_ms)
            event = Settle(now, client, self._task.reader, *place, *named, how, counted)
            self._history.write(event)
