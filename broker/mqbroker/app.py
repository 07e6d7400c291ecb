"""A broker process: the replica's ledger, the server, the registration, the snapshots.

Start: state from the snapshot, the ledger (recovery of the log), then the port for clients; the
entries since the snapshot are applied as soon as the group says which are committed. Stop: a
leader hands over to another replica, name servers are told, then no more requests are taken, then
the state is saved.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio
import trio

from dledger.errors import Fenced, StorageError, WrittenByNewer
from dledger.failpoints import failpoint
from dledger.ledger.ledger import Ledger, open_ledger
from dledger.log.segments.space import FULL
from dledger.metrics.config import Port, port_of
from dledger.metrics.text import Buckets
from dledger.net import serve_remoting
from dledger.net.machine import calm_collector, quota_on_machine
from dledger.net.quota import ConnectionQuota
from dledger.net.turns import in_turns
from dledger.net.watchdog import Watchdog, watched_loop
from dledger.observe import get_logger
from dledger.program.audit_log import AuditLog
from dledger.tls.options import Mode
from dledger.tls.servers import ServerContexts
from dledger.trust.rolling import Secrets
from dledger.world import steady_s, unix_ms, world
from mqbroker import limits
from mqbroker.broker import Broker
from mqbroker.config import BrokerConfig
from mqbroker.metrics.endpoint import serve_metrics
from mqbroker.metrics.history import Recorder
from mqbroker.metrics.sources import Process, Sources
from mqbroker.registration import Registration
from mqbroker.requests.core import Core
from mqbroker.rolling import Rolling
from mqbroker.state.derived.consume_queue import make_files
from mqbroker.state.derived.units import DamagedFiles
from mqbroker.state.machine import Machine
from mqbroker.state.saved.snapshot import PendingSnapshot, PictureSpoiled
from mqbroker.upkeep.disk_space import DiskSpace
from mqbroker.upkeep.keeping import keep_running
from mqbroker.upkeep.mending import Mending
from mqbroker.upkeep.retention import Retention

_log = get_logger(__name__)


async def _stop_signal() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            return


Stop = Callable[[], Awaitable[None]]
"""Returns when the broker shall stop."""


async def run_broker(config: BrokerConfig, stop: Stop = _stop_signal) -> None:
    """Be a broker's process until it is told to stop: by SIGTERM or SIGINT.

    Raises ConfigError, StorageError or OSError if it can't start, and Fenced if its disk fails.
    """
    config.check()
    anyio.get_cancelled_exc_class()  # loads its modules for trio now: 0.1 s, while no client waits
    quota = quota_on_machine(
        config.client_memory_max, config.connections_per_address_max, limits.DESCRIPTORS_RESERVED
    )
    tls = _contexts_of(config)
    secrets = config.secrets()
    async with _open_replica(config, tls, secrets) as (machine, ledger):
        calm_collector()
        with watched_loop() as watchdog:
            await _serve(config, machine, ledger, quota, stop, tls, secrets, watchdog)


async def run_replica(config: BrokerConfig, quota: ConnectionQuota, stop: Stop) -> None:
    """Run a broker until `stop` returns, in a process that others own. Raises as `run_broker`."""
    config.check()
    tls = _contexts_of(config)
    secrets = config.secrets()
    async with _open_replica(config, tls, secrets) as (machine, ledger):
        await _serve(config, machine, ledger, quota, stop, tls, secrets)


def _contexts_of(config: BrokerConfig) -> ServerContexts | None:
    """The keys that a broker encrypts with; None if it does not. Raises ConfigError."""
    options = config.tls()
    return None if options is None else ServerContexts(options)


@asynccontextmanager
async def _open_replica(
    config: BrokerConfig, tls: ServerContexts | None, secrets: Secrets
) -> AsyncIterator[tuple[Machine, Ledger]]:
    """The state from its snapshot, and the ledger; closed when the block is left."""
    machine = Machine(Path(config.store_path_root_dir))
    unusable = machine.restore()
    if unusable is not None:
        _log.warning("saved state not used", reason=unusable, remedy="the log is replayed")
    encrypts = tls is not None and tls.options.members is not Mode.DISABLED
    own = replace(config.ledger(), tls=tls if encrypts else None, secret=secrets)
    async with open_ledger(own, machine) as ledger:
        # Nothing was applied yet, as this task has not awaited anything since the ledger was
        # opened.
        if machine.state_index > ledger.status.last_index:
            _log.warning(
                "snapshot not used",
                reason=f"it holds entry {machine.state_index}, the log ends at "
                f"{ledger.status.last_index}",
            )
            machine.forget()
        try:
            yield machine, ledger
        finally:
            machine.close()


async def _serve(
    config: BrokerConfig,
    machine: Machine,
    ledger: Ledger,
    quota: ConnectionQuota,
    stop: Stop,
    tls: ServerContexts | None,
    secrets: Secrets,
    watchdog: Watchdog | None = None,
) -> None:
    audit = AuditLog(config.audit_folder)
    parts = (config, machine, ledger, unix_ms, steady_s)
    core = Core(*parts, quota=quota, tls=tls, audit_log=audit, secrets=secrets)
    registration = Registration(core)
    broker = Broker(core)
    snapshots = Snapshots(machine, ledger)
    figures = port_of(config, has_users=bool(secrets))
    process = Process(ledger.segments, lambda: snapshots.saved_s, snapshots.took, watchdog)
    async with trio.open_nursery() as nursery:
        host = config.client_host
        taker = tls and tls.taker
        serve = partial(
            serve_remoting, broker.handler, host, faults=core.faults, quota=quota, tls=taker
        )
        port = await nursery.start(serve, config.listen_port)
        if config.vip_channel_enable:
            await nursery.start(serve, config.vip_port)
        _log.info(
            "broker started",
            node=config.node_id,
            address=f"{host}:{port}",
            entries_to_apply=ledger.status.last_index - machine.applied_index,
            connections_max=quota.places_max,
            client_memory_max=quota.bytes_max,
        )
        await _serve_figures(nursery, figures, broker.sources, process)
        space = DiskSpace(config, ledger.refuses_messages)
        core.appender.refusal = lambda: space.refusal
        retention = Retention(config, machine, ledger, core.role, lambda: unix_ms() / 1000, space)
        mending = Mending(machine, ledger)
        recorder = Recorder(broker.sources, process)
        for part in (broker, registration, snapshots, retention, mending, space, recorder):
            nursery.start_soon(keep_running, type(part).__name__, part.run, core.faults)
        nursery.start_soon(_watch_fence, ledger)
        if tls is not None:
            nursery.start_soon(keep_running, "certificates", tls.run, core.faults)
        rolling = Rolling(core, broker.users.wrap_anew)
        nursery.start_soon(keep_running, "secrets", rolling.run, core.faults)
        await stop()
        _log.info("broker stopping", node=config.node_id)
        await ledger.resign()
        registration.stop()
        with trio.move_on_after(limits.STOP_S):
            await registration.stopped.wait()
        nursery.cancel_scope.cancel()
    with trio.move_on_after(limits.STOP_SAVE_S, shield=True):
        await snapshots.save()
    _log.info("broker stopped", node=config.node_id)


async def _serve_figures(
    nursery: trio.Nursery, figures: Port | None, sources: Sources, process: Process
) -> None:
    """Open the port for figures, if one is wanted."""
    if figures is not None:
        port = await nursery.start(partial(serve_metrics, figures, sources, process))
        sources.core.metrics_address = f"{figures.host}:{port}"
        _log.info("figures served", address=sources.core.metrics_address)


class Snapshots:
    """Saves the state now and then, so that a restart replays little.

    What a start replays counts as well: else brokers that are often restarted would never save, and
    each start would take longer.
    """

    def __init__(self, machine: Machine, ledger: Ledger) -> None:
        self._machine = machine
        self._ledger = ledger
        self._saved_position = _position_behind(ledger, machine.applied_index)
        self._saved_applying_s = ledger.applying_s
        self._held_s = 0.0
        self._looked_at = float("-inf")
        self._failed = self._lacks_space = False
        self.saved_s: float | None = None
        #: How long it took each time, in seconds.
        self.took = Buckets(limits.SNAPSHOT_BOUNDS_S)
        self._writing = False
        self._keep_from(machine.first_index, machine.saved_index)

    async def run(self) -> None:
        """Save when enough was applied, or when this replica is not counted until it has saved."""
        while True:
            waited_for = self._ledger.state_unsaved
            if not waited_for and not self._is_worth_it:
                await self._ledger.changed()
            elif (waited_for and not self._lacks_space) or self._is_due:
                await self.save()
                self._looked_at = trio.current_time()
            await trio.sleep(limits.SNAPSHOT_LOOK_S)

    @property
    def _is_due(self) -> bool:
        return trio.current_time() - self._looked_at >= limits.SNAPSHOT_INTERVAL_S

    @property
    def _is_worth_it(self) -> bool:
        entries = self._machine.applied_index - self._machine.saved_index
        applying_s = self._ledger.applying_s - self._saved_applying_s
        cost_s = limits.SNAPSHOT_COST_FACTOR * self._held_s
        log_bytes = self._ledger.status.end_position - self._saved_position
        return entries > 0 and (
            self._machine.first_index != self._kept_index
            or entries >= limits.SNAPSHOT_ENTRIES
            or log_bytes >= limits.SNAPSHOT_LOG_BYTES
            or applying_s >= max(limits.SNAPSHOT_APPLY_S, cost_s)
        )

    async def save(self) -> None:
        """Save a snapshot now, if entries were applied since the last one. After a failed sync
        nothing is saved any more, as nobody knows what is on the disk. Nothing is saved either
        while another snapshot is being written."""
        machine, ledger = self._machine, self._ledger
        if self._failed or self._writing or machine.applied_index == machine.saved_index:
            return
        began_s = trio.current_time()
        try:
            await self._flush()
            position, first_index = ledger.status.end_position, machine.first_index
            applying_s = ledger.applying_s
            failpoint("snapshot.begin")
            pending = await self._picture()
        except OSError as error:
            self._not_saved(error)
            return
        except PictureSpoiled:
            return  # queues are made again meanwhile: the next look saves
        await ledger.wait_durable(pending.needed_index)
        if pending.generation != machine.generation:
            return  # another replica's state was taken over meanwhile
        self._writing = True
        failpoint("snapshot.sync")
        try:
            # A stop does not wait for ten thousand files: a restart replays what was not saved.
            await world().in_thread(pending.write, abandon_on_cancel=True)
        except OSError as error:
            self._writing = False
            if pending.generation != machine.generation:
                return  # the same, and these files are gone
            self._not_saved(error)
            return
        except DamagedFiles:
            self._writing = False
            return  # `mqbroker.upkeep.mending` repairs it
        self._writing = self._lacks_space = False
        machine.saved(pending)
        self.saved_s = trio.current_time()
        self.took.add(self.saved_s - began_s)
        failpoint("snapshot.saved")
        self._saved_position, self._saved_applying_s = position, applying_s
        self._keep_from(first_index, machine.saved_index)

    async def _picture(self) -> PendingSnapshot:
        """The state as it is now, taken a slice in each turn of the loop. OSError, PictureSpoiled.

        Appends wait for it, so it waits for no other work than that of one turn.
        """
        slices, began_s = self._machine.begin_snapshot(), trio.current_time()
        with self._ledger.applying_held():
            while True:
                try:
                    next(slices)
                except StopIteration as end:
                    pending: PendingSnapshot = end.value
                    self._held_s = trio.current_time() - began_s
                    return pending
                await trio.lowlevel.checkpoint()

    async def _flush(self) -> None:
        """Hand what many queues hold to the operating system, a few at a time. OSError."""
        queues = self._machine.queues
        for _ in range(limits.SNAPSHOT_FLUSHES_MAX):
            # Meanwhile other queues get units, fewer each time; the last few are written with the
            # snapshot.
            if queues.dirty <= limits.SYNCED_ONE_BY_ONE_MAX:
                break
            await world().in_thread(make_files, queues.new_files(), abandon_on_cancel=True)
            await in_turns(itertools.islice(queues.flush_steps(), queues.dirty))

    def _not_saved(self, error: OSError) -> None:
        """On a full disk, saving is tried again later. A failed sync shows when the file is
        read."""
        self._lacks_space = error.errno in FULL
        self._failed = not self._lacks_space
        _log.error("snapshot failed", reason=str(error), remedy="a restart replays more")

    def _keep_from(self, first_index: int, saved_index: int) -> None:
        """Remove old segments that neither readers nor a restart need."""
        self._kept_index = first_index
        self._ledger.keep_from(min(first_index, saved_index + 1))


def _position_behind(ledger: Ledger, index: int) -> int:
    """Where an applied entry ends in the log; where the log begins if the entry can't be read."""
    try:
        for entry in ledger.entries(index, index):
            return entry.body_position + len(entry.body)
    except StorageError:
        pass  # the ledger repairs it
    return ledger.status.first_position


async def _watch_fence(ledger: Ledger) -> None:
    """End the process when the ledger has given up: a restart re-reads what is on disk."""
    error = await ledger.wait_fenced()
    if isinstance(error, WrittenByNewer):
        raise error
    raise Fenced(str(error)) from error
