"""Some fifty figures of a broker, taken each ten seconds and kept for an hour.

They are read where they are kept anyway; nothing is counted for them where messages pass.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from dledger.metrics.limits import HISTORY_STEP_S
from dledger.metrics.text import Buckets
from dledger.net.machine import memory_bytes
from dledger.program.pulse import look
from mqbroker.metrics.health import leader_of
from mqbroker.metrics.sources import Process, Sources


class Recorder:
    """Fills the ring of one broker."""

    def __init__(self, sources: Sources, process: Process | None) -> None:
        self._sources = sources
        self._process = process

    async def run(self) -> None:
        """Take the figures until cancelled."""
        while True:
            self.take()
            await look(HISTORY_STEP_S)

    def take(self) -> None:
        """Keep what the figures are now."""
        core = self._sources.core
        core.history.add(core.clock_ms(), dict(self._figures()))

    def _figures(self) -> Iterator[tuple[str, float]]:
        yield from self._of_group()
        yield from self._of_log()
        yield from self._of_traffic()
        yield from self._of_clients()
        yield from self._of_process()

    def _of_group(self) -> Iterator[tuple[str, float]]:
        core, status = self._sources.core, self._sources.core.log.status
        others = [each for each in status.members if each.node_id != status.node_id]
        yield "leads", core.role.serving
        yield "has_leader", leader_of(core) is not None
        yield "term", status.term
        yield "leader_changes_total", core.role.leader_changes
        yield "last_index", status.last_index
        yield "commit_index", status.commit_index
        yield "applied_index", core.machine.applied_index
        yield "peers_linked", sum(each.linked for each in others)
        yield "peer_lag_entries_max", max((each.lag_entries or 0 for each in others), default=0)
        yield "entries_set_aside", core.machine.aside.count
        yield "faults_total", core.faults.count

    def _of_log(self) -> Iterator[tuple[str, float]]:
        core, status = self._sources.core, self._sources.core.log.status
        yield "log_bytes", max(0, status.end_position - status.first_position)
        yield "unapplied_bytes", core.log.bytes_behind(core.machine.applied_index)
        yield "unsaved_entries", core.machine.applied_index - core.machine.saved_index
        try:
            disk = os.statvfs(Path(core.config.store_path_root_dir).parent)
        except OSError:
            yield "disk_free_bytes", -1
            yield "disk_total_bytes", -1
        else:
            yield "disk_free_bytes", disk.f_bavail * disk.f_frsize
            yield "disk_total_bytes", disk.f_blocks * disk.f_frsize
        yield from _timed("append", core.entries.times.appends)
        yield "append_max_seconds", core.entries.times.append_max_s
        yield from _timed("sync", status.sync_times or Buckets(()))

    def _of_traffic(self) -> Iterator[tuple[str, float]]:
        core = self._sources.core
        machine, rates = core.machine, core.rates
        yield "messages_in_total", rates.put_messages.total
        yield "bytes_in_total", rates.put_bytes.total
        yield "messages_out_total", rates.got_messages.total
        yield "reads_found_total", rates.pulls_found.total
        yield "reads_empty_total", rates.pulls_missed.total
        yield "sends_held_back_total", rates.sends_held_back.total
        yield "reads_held_back_total", rates.reads_held_back.total
        yield "repeats_put_off_total", rates.repeats_put_off.total
        yield "dead_letters_total", sum(rates.traffic.given_up.values())
        yield "rolled_back_total", sum(rates.traffic.rolled_back.values())
        yield "half_messages", len(machine.halves)
        yield "timed_messages", len(machine.timers)
        yield "popped_messages", machine.popped.count
        yield "topics", len(machine.topics)
        yield "consumer_groups", len(machine.groups)
        yield "users", len(machine.users)
        yield "requests_refused_total", core.guard.refused

    def _of_clients(self) -> Iterator[tuple[str, float]]:
        quota, membership = self._sources.core.quota, self._sources.membership
        consumers = [len(group.members) for _, group in membership.consumer_groups()]
        yield "producers", sum(len(members) for _, members in membership.producer_groups())
        yield "consumers", sum(consumers)
        yield "consumer_groups_online", len(consumers)
        yield "connections", quota.places_taken
        yield "connection_memory_bytes", quota.charged_bytes
        yield "connections_refused_total", quota.refused
        yield "connections_evicted_total", quota.evicted
        yield "connections_over_memory_total", quota.offenders

    def _of_process(self) -> Iterator[tuple[str, float]]:
        watchdog = None if self._process is None else self._process.watchdog
        yield "loop_stalls_total", 0 if watchdog is None else watchdog.stalls
        yield "loop_stall_max_seconds", 0 if watchdog is None else watchdog.longest_s
        yield "cpu_seconds_total", time.process_time()
        yield "memory_bytes", memory_bytes()


def _timed(name: str, times: Buckets) -> Iterator[tuple[str, float]]:
    """How often something was done, and how long that took together."""
    yield f"{name}s_total", sum(times.counts)
    yield f"{name}_seconds_total", times.total
