"""The name server as a whole: socket, clock, and the scan for silent brokers."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection
from functools import partial
from pathlib import Path

import trio

from dledger.metrics.config import port_of
from dledger.net import Faults, serve_remoting
from dledger.net.machine import quota_on_machine
from dledger.net.quota import ConnectionQuota
from dledger.net.watchdog import watched_loop
from dledger.observe import get_logger
from dledger.program.pulse import look
from dledger.tls.servers import ServerContexts
from dledger.trust.proof import NONCE_BYTES
from mqnamesrv import limits
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.metrics import Recorder, serve_metrics
from mqnamesrv.requests.dispatch import Dispatcher
from mqnamesrv.rolling import keep_secrets
from mqnamesrv.saved.away import Away
from mqnamesrv.saved.kv_file import KvStore

_log = get_logger(__name__)


async def serve(
    config: NamesrvConfig,
    quota: ConnectionQuota | None = None,
    *,
    groups: Collection[str] = (),
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; `task_status` gets the port once connections are accepted. Without a
    `room` there is as much as the machine has. `groups` are all broker groups, where that is known.

    ConfigError if the key-value file or the secret can't be used, OSError if the port can't.
    """
    kv = KvStore(Path(config.kv_config_path) if config.kv_config_path else None)
    door = config.door(partial(os.urandom, NONCE_BYTES))
    quota = quota or quota_on_machine(
        config.client_memory_max, config.connections_per_address_max, limits.DESCRIPTORS_RESERVED
    )
    tls_options = config.tls_options()
    tls = None if tls_options is None else ServerContexts(tls_options)
    taker = tls and tls.taker
    figures = port_of(config, has_users=bool(config.secret_file))
    dispatcher = Dispatcher(config, kv, trio.current_time, door, groups)
    away = Away(kv, dispatcher.routes.topics)
    async with trio.open_nursery() as nursery:
        faults = Faults()
        address = config.bind_address, config.listen_port
        port = await nursery.start(
            partial(serve_remoting, dispatcher, *address, faults=faults, quota=quota, tls=taker)
        )
        _log.info(
            "name server started",
            address=f"{config.bind_address}:{port}",
            connections_max=quota.places_max,
            client_memory_max=quota.bytes_max,
        )
        if tls is not None:
            nursery.start_soon(tls.run)
        if figures is not None:
            tell = partial(serve_metrics, figures, dispatcher, quota, faults, taker)
            bound = await nursery.start(tell)
            _log.info("figures served", address=f"{figures.host}:{bound}")
        nursery.start_soon(Recorder(dispatcher, quota, faults).run)
        task_status.started(port)
        nursery.start_soon(away.keep_on)
        if config.secret_file:
            nursery.start_soon(keep_secrets, Path(config.secret_file), door, dispatcher.users)
        while True:
            await look(limits.SCAN_INTERVAL_S)
            try:
                dispatcher.expire()
            except Exception as error:  # caused by what a broker said: go on for the others
                faults.note("scan failed", error)


async def serve_until_signalled(config: NamesrvConfig) -> None:
    """Serve until SIGTERM or SIGINT; then close every connection and return."""
    with (
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
        watched_loop(),
    ):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve, config)
            async for number in signals:
                _log.info("name server stopping", signal=signal.Signals(number).name)
                nursery.cancel_scope.cancel()
                break
