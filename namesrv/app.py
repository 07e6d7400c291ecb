"""The name server as a whole: socket, clock, and the scan for silent brokers."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import trio

from dledger.net import serve_remoting
from dledger.net.machine import room_on_machine
from dledger.net.watchdog import watched_loop
from dledger.observe import get_logger
from namesrv import limits
from namesrv.config import NamesrvConfig
from namesrv.dispatch import Dispatcher
from namesrv.kv_file import KvStore

_log = get_logger("namesrv")


async def serve(
    config: NamesrvConfig, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Serve until cancelled; `task_status` gets the port once connections are accepted.

    ConfigError if the key-value file can't be used, OSError if the port can't.
    """
    kv = KvStore(Path(config.kv_config_path) if config.kv_config_path else None)
    room = room_on_machine(
        config.client_memory_max, config.connections_per_address_max, limits.DESCRIPTORS_RESERVED
    )
    dispatcher = Dispatcher(config, kv, trio.current_time)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(
            partial(serve_remoting, dispatcher, config.bind_address, config.listen_port, room=room)
        )
        _log.info("name server started", address=f"{config.bind_address}:{port}")
        task_status.started(port)
        while True:
            await trio.sleep(limits.SCAN_INTERVAL_S)
            dispatcher.expire()


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
