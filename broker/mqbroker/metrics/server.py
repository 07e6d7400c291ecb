"""Figures that every replica has: its state, its log and disk, its clients."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator

import trio

from dledger.metrics.text import CERTIFICATE_END, CLOCK, Family, Sample, Writer
from dledger.version import __version__
from mqbroker.limits import USERS_DIGEST_CHARACTERS
from mqbroker.metrics import naming
from mqbroker.metrics.sources import Process, Sources
from mqbroker.metrics.traffic import Names
from mqbroker.requests.reading.earliest import NO_MESSAGE, EarliestMessage

_REMOTING = {"protocol_type": "remoting"}


def _gauge(name: str, text: str) -> Family:
    return Family(name, "gauge", text)


def _counter(name: str, text: str) -> Family:
    return Family(name, "counter", text)


class ServerFigures:
    """Figures of this replica's state, disk, log, process and clients."""

    def __init__(self, sources: Sources, process: Process | None, names: Names) -> None:
        self._sources = sources
        self._core = sources.core
        self._process = process
        self._names = names
        self._earliest = EarliestMessage(sources.core.log)

    def pieces(self, writer: Writer) -> Iterator[str]:
        """The metric families as text, a piece at a time."""
        for part in (
            self._about_state,
            self._about_disk,
            self._about_log,
            self._about_process,
        ):
            for family, samples in part():
                yield from writer.family(family, samples)
        yield from self._clients(writer)

    def _about_state(self) -> Iterator[tuple[Family, Iterable[Sample]]]:
        core, machine = self._core, self._core.machine
        for name, value, text in (
            ("rocketmq_broker_permission", core.permission, "2 write, 4 read, 6 both."),
            ("rocketmq_topic_number", len(machine.topics), "Topics of this broker group."),
            ("rocketmq_consumer_group_number", len(machine.groups), "Its consumer groups."),
            ("dledger_users", len(machine.users), "Its users."),
            ("dledger_entries_set_aside", machine.aside.count, "Entries without effect."),
            ("dledger_popped_messages", machine.popped.count, "Popped messages in flight."),
        ):
            yield _gauge(name, text), [({}, value)]
        digest = int(machine.users.digest()[:USERS_DIGEST_CHARACTERS], 16)
        text = "A hash of users and their rights: the same on all members."
        yield _gauge("dledger_users_hash", text), [({}, digest)]

    def _about_disk(self) -> Iterator[tuple[Family, Iterable[Sample]]]:
        """Space of the store's file system; nothing if it does not say, as a broken one may not."""
        core = self._core
        try:
            disk = os.statvfs(core.config.store_path_root_dir)
        except OSError:
            return
        size, unused = disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize
        text = "Used bytes of the whole file system, as in RocketMQ."
        yield _gauge("rocketmq_storage_size_bytes", text), [(naming.STORE, size - unused)]
        text = "Bytes of the store's file system."
        yield _gauge("dledger_disk_total_bytes", text), [({}, size)]
        text = "Bytes that are free for this user."
        yield _gauge("dledger_disk_free_bytes", text), [({}, disk.f_bavail * disk.f_frsize)]

    def _about_log(self) -> Iterator[tuple[Family, Iterable[Sample]]]:
        core, status = self._core, self._core.log.status
        first, end = status.first_position, status.end_position
        unapplied_bytes = core.log.bytes_behind(core.machine.applied_index)
        unsynced_bytes = core.log.bytes_behind(status.durable_index)
        earliest_ms = self._earliest.store_timestamp_ms(first, end)
        for name, value, text in (
            ("dispatch_behind_bytes", unapplied_bytes, "Bytes of the log not applied."),
            ("flush_behind_bytes", unsynced_bytes, "Bytes of the log not synced."),
        ):
            yield _gauge(f"rocketmq_storage_{name}", text), [(naming.STORE, value)]
        if earliest_ms != NO_MESSAGE:
            text, age_ms = "The age of the oldest message.", max(0, core.clock_ms() - earliest_ms)
            name = "rocketmq_storage_message_reserve_time_milliseconds"
            yield _gauge(name, text), [(naming.STORE, age_ms)]
        text, reclaimed = "Bytes of old segments that were removed.", status.reclaimed_bytes
        yield _counter("dledger_log_reclaimed_bytes_total", text), [({}, reclaimed)]
        for name, value, text in (
            ("dledger_log_bytes", max(0, end - first), "Bytes of the log."),
            ("dledger_log_end_position", end, "Where the log ends."),
            ("dledger_log_first_position", first, "Where the log begins."),
        ):
            yield _gauge(name, text), [({}, value)]

    def _about_process(self) -> Iterator[tuple[Family, Iterable[Sample]]]:
        core, quota, process = self._core, self._core.quota, self._process
        info = {"version": __version__}
        yield _gauge("dledger_build_info", "The version that runs here."), [(info, 1)]
        yield _counter("dledger_faults_total", "Unforeseen exceptions."), [({}, core.faults.count)]
        yield CLOCK, [({}, core.clock_ms() / 1000)]
        text = "Time from the append of messages until they are applied."
        yield (
            Family("dledger_append_seconds", "histogram", text),
            [({}, core.entries.times.appends)],
        )
        for name, value, text in (
            ("", quota.places_taken, "Connections of clients."),
            ("_max", quota.places_max, "How many there may be."),
            ("_memory_bytes", quota.charged_bytes, "Bytes that are kept for them."),
            ("_memory_bytes_max", quota.bytes_max, "How many there may be."),
        ):
            yield _gauge(f"dledger_connections{name}", text), [({}, value)]
        ended = [
            ({"reason": "no room"}, quota.refused),
            ({"reason": "never spoke"}, quota.evicted),
            ({"reason": "memory"}, quota.offenders),
        ]
        text = "Connections that were refused or closed by a bound."
        yield _counter("dledger_connections_turned_away_total", text), ended
        refused = [({"reason": "rights"}, core.guard.refused)]
        text = "Requests that were refused, or would be if rights were enforced."
        yield _counter("dledger_requests_refused_total", text), refused
        if core.tls is not None and core.tls.ends_s is not None:
            yield CERTIFICATE_END, [({}, core.tls.ends_s)]
        if process is None:
            return
        text = "Time to save the state."
        yield Family("dledger_snapshot_seconds", "histogram", text), [({}, process.saving)]
        segments = process.segments()
        yield _gauge("dledger_log_segments", "Segments of the log."), [({}, len(segments))]
        text = "Time for a sync of the log to its disk."
        times = core.log.status.sync_times
        if times is not None:
            yield Family("dledger_sync_seconds", "histogram", text), [({}, times)]
        saved_s = process.saved_s()
        if saved_s is not None:
            text = "Since the state was saved last."
            age_s = max(0.0, trio.current_time() - saved_s)
            yield _gauge("dledger_snapshot_age_seconds", text), [({}, age_s)]
        if process.watchdog is not None:
            watchdog = process.watchdog
            text = "Turns of the event loop that took too long."
            yield _counter("dledger_loop_stalls_total", text), [({}, watchdog.stalls)]
            text = "The longest of them."
            yield _gauge("dledger_loop_stall_max_seconds", text), [({}, watchdog.longest_s)]

    def _clients(self, writer: Writer) -> Iterator[str]:
        membership = self._sources.membership
        producers = {
            connection_id: (client.language.lower(), naming.version(client.version))
            for _, members in list(membership.producer_groups())
            for connection_id, client in members.items()
        }
        samples = Counter(producers.values()).items()
        yield from writer.family(
            _gauge("rocketmq_producer_connections", "Connected producers."),
            [
                ({"language": language, "version": version, **_REMOTING}, count)
                for (language, version), count in samples
            ],
        )
        consumers: Counter[tuple[str, ...]] = Counter()
        for group, found in list(membership.consumer_groups()):
            yield ""
            shown, mode = self._names.groups.name(group), naming.consume_mode(found.consume_type)
            system = naming.flag(naming.is_system_group(group))
            for client in found.members.values():
                version = naming.version(client.version)
                consumers[shown, client.language.lower(), version, mode, system] += 1
        labels = ("consumer_group", "language", "version", "consume_mode", "is_system")
        yield from writer.family(
            _gauge("rocketmq_consumer_connections", "Connected members of consumer groups."),
            (
                (dict(zip(labels, key, strict=True)) | _REMOTING, count)
                for key, count in consumers.items()
            ),
        )
