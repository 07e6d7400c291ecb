"""Removes old messages: the leader decides which, by an entry in the log.

All replicas must have the same messages, or a consumer would see offsets go back after a failover.
So the leader appends an entry with the log's new beginning. Each replica moves its queues' first
offsets when it applies that entry, and removes files once it has a durable snapshot that does not
need them.

Entries that are still needed stay, however old they are: those that a connected follower has not
been sent, delayed messages and open transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import trio

from dledger.errors import AppendError
from dledger.failpoints import failpoint
from dledger.ledger.ledger import Ledger
from dledger.log.entry import Kind
from dledger.log.segments.retention import RetentionPolicy, SegmentInfo, first_kept
from dledger.remoting.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqbroker.config import BrokerConfig
from mqbroker.leader.role import Role
from mqbroker.state import control
from mqbroker.state.derived.units import DamagedFiles
from mqbroker.state.machine import Machine
from mqbroker.upkeep.disk_space import DiskSpace


def policy_of(config: BrokerConfig) -> RetentionPolicy:
    """The policy of the config: `fileReservedTime` (hours), `commitLogSizeMax` (bytes); 0 for no
    bound."""
    return RetentionPolicy(
        age_max_s=config.file_reserved_time * 3600 or None,
        size_bytes_max=config.commit_log_size_max or None,
    )


def needed_index(segments: Sequence[SegmentInfo], machine: Machine, sent_index: int) -> int:
    """The oldest entry that is still needed; `sent_index` is the last that every follower was
    sent."""
    needed = min(sent_index, machine.applied_index)
    for position in _waiting_positions(machine):
        held = [segment.first_index for segment in segments if segment.base_position <= position]
        needed = min(needed, held[-1] if held else 0)
    return needed


def _waiting_positions(machine: Machine) -> Iterator[int]:
    """The positions of the oldest waiting messages: of each delay level, of timers, of
    transactions."""
    levels = machine.queues.topic(SCHEDULE_TOPIC)
    for queue_id, queue in levels or ():
        for unit in queue.read(machine.delays.next(queue_id), 1):
            yield int(unit["position"])
    for topic, waiting in ((TIMER_TOPIC, machine.timers), (HALF_TOPIC, machine.halves)):
        oldest, waiting_queue = waiting.first_offset(), machine.queues.get(topic, 0)
        if oldest is not None and waiting_queue is not None:
            for unit in waiting_queue.read(oldest, 1):
                yield int(unit["position"])


@dataclass(eq=False, slots=True)
class Retention:
    """Looks for old segments now and then, while this replica leads."""

    _config: BrokerConfig
    _machine: Machine
    _ledger: Ledger
    _role: Role
    _clock_s: Callable[[], float]
    _space: DiskSpace

    async def run(self) -> None:
        """Look for old segments every `cleanResourceInterval` ms until cancelled; only a leader
        looks."""
        while True:
            await trio.sleep(self._config.clean_resource_interval / 1000)
            if self._role.serving:
                with suppress(DamagedFiles):  # made again soon
                    self.look()

    def _policy(self, segments: Sequence[SegmentInfo]) -> RetentionPolicy:
        """The policy of the config; on a disk that is nearly full, one that removes the oldest
        segment."""
        policy = policy_of(self._config)
        if self._space.cleans_forcibly and segments:
            held = sum(segment.size_bytes for segment in segments)
            return RetentionPolicy(policy.age_max_s, held - 1)
        return policy

    def look(self) -> None:
        """If a part of the log is too old, append an entry with its new beginning."""
        segments = self._ledger.segments()
        needed = needed_index(segments, self._machine, self._ledger.sent_to_all_index)
        kept = first_kept(segments, self._policy(segments), self._clock_s(), needed)
        if kept is None or kept.base_position <= self._machine.first_position:
            return
        failpoint("retention.decide")
        change = control.DropHead(kept.base_position, kept.first_index)
        # If leadership is lost meanwhile, the next leader does this itself.
        with suppress(AppendError):
            body = control.encode_control(change)
            self._ledger.append_nowait(body, Kind.CONTROL, lambda _: None, urgent=True)
