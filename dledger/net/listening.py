"""Accepting connections: many in a turn, and with a pause when the machine has no room for more."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import NoReturn

import trio

from dledger.limits import ACCEPT_PAUSE_S, ACCEPTS_PER_TURN_MAX
from dledger.net.faults import Faults
from dledger.observe import get_logger

log = get_logger(__name__)

_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


async def accept_forever(
    listener: socket.socket,
    start: Callable[[socket.socket, tuple[str, int]], None],
    faults: Faults,
) -> NoReturn:
    """Accept connections until cancelled; `start` is given each, with its host and port."""
    while True:
        await trio.lowlevel.wait_readable(listener)
        for _ in range(ACCEPTS_PER_TURN_MAX):
            try:
                accepted, address = listener.accept()
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    log.error("accepting pauses", reason=str(error))
                    await trio.sleep(ACCEPT_PAUSE_S)
                # Otherwise the connection was gone before it was accepted.
                break
            try:
                start(accepted, address[:2])
            except Exception as error:
                faults.note("connection not served", error, peer=address[:2])
                accepted.close()
