"""What tools change during a run: as `mqadmin` does it, while clients send and read.

A tool that is refused, or gets no answer, as while nobody leads, tries again later. What it was not
told may have happened all the same: a reset counts from its first try to a while after the one that
was answered.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import trio

from dledger.errors import BadInput, DledgerError
from mqchaos.cluster.layout import CLIENTS, Layout
from mqchaos.limits import (
    MEDDLE_EVERY_S,
    MEDDLED_MAX,
    RESET_BACK_S,
    RESET_SETTLES_S,
    WIDENED_QUEUES_MAX,
)
from mqclient import Admin
from mqclient.admin.results import QueueReset

OffsetsMoved: TypeAlias = Callable[[Sequence[QueueReset], int], None]
"""Told the queues whose offsets were set, and from when on that may have been."""


async def reset(layout: Layout, topic: str, group: str, on_moved: OffsetsMoved) -> None:
    """Set the group's offsets back by a few seconds, now and then, for ever.

    One that is under way when this is cancelled counts, too.
    """
    async with Admin(layout.namesrv_addr_for(CLIENTS)) as admin:
        queues: Sequence[QueueReset] = ()
        while True:
            await trio.sleep(MEDDLE_EVERY_S)
            began, moved = time.monotonic_ns(), False
            try:
                while not moved:
                    back_ms = round((time.time() - RESET_BACK_S) * 1000)
                    with suppress(DledgerError, BadInput):
                        queues = await admin.groups.reset_offset(group, topic, back_ms, force=False)
                        moved = True
                    await trio.sleep(RESET_SETTLES_S)
            finally:
                on_moved(queues, began)


async def change(layout: Layout, topic: str, group: str, on_moved: OffsetsMoved) -> None:
    """Make, change and delete topics, groups and settings, for ever; the run's own topic, too."""
    async with Admin(layout.namesrv_addr_for(CLIENTS)) as admin:
        for turn in itertools.count():
            other, hours = f"Tool-{turn % MEDDLED_MAX}", str(72 + turn % 2)
            for each in (
                partial(admin.topics.update, other, read_queues=2, write_queues=2),
                partial(admin.topics.update, topic, read_queues=8, write_queues=8),
                partial(admin.settings.update_broker_config, "fileReservedTime", hours),
                partial(admin.topics.delete, other),
            ):
                with suppress(DledgerError, BadInput):
                    await each()
                await trio.sleep(MEDDLE_EVERY_S / 4)


async def widen(layout: Layout, topic: str, group: str, on_moved: OffsetsMoved) -> None:
    """Once the group reads, give the topic one queue more, again and again."""
    async with Admin(layout.namesrv_addr_for(CLIENTS)) as admin:
        queues = 0
        while not queues:
            await trio.sleep(MEDDLE_EVERY_S / 4)
            with suppress(DledgerError, BadInput):
                rows = (await admin.groups.progress(group, topic)).queues
                queues = len(rows) if any(row.consumer_offset > 0 for row in rows) else 0
        while queues < WIDENED_QUEUES_MAX:
            await trio.sleep(MEDDLE_EVERY_S)
            with suppress(DledgerError, BadInput):
                await admin.topics.update(topic, read_queues=queues + 1, write_queues=queues + 1)
                queues += 1
        await trio.sleep_forever()


MEDDLING: Final[Mapping[str, Callable[[Layout, str, str, OffsetsMoved], Awaitable[None]]]] = {
    "resets": reset,
    "changes": change,
    "widens": widen,
}
