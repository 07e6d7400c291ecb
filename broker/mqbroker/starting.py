"""Starts a replica from the command line: reads its config, and reports why it could not run."""

from __future__ import annotations

import errno
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
import trio

from dledger.errors import (
    ConfigError,
    DledgerError,
    Fenced,
    PeerPortClosed,
    WrittenByNewer,
    leaves,
)
from dledger.failpoints import VARIABLE
from dledger.limits import OTHERS
from dledger.log.disk import is_loss
from dledger.observe import get_logger
from dledger.program.config import load_config
from dledger.program.logs import LogFormat, configure_logging
from mqbroker.app import run_broker
from mqbroker.config import BrokerConfig
from mqbroker.restoring import restore

_EXIT_FAILED = 1
_EXIT_USAGE = 2
#: Other errors of what is done with files are the disk's.
_REMEDIES: Final[dict[int | None, str]] = {
    errno.ENOMEM: "give it more memory (its limit, or the machine's)",
    errno.EMFILE: "raise its limit of open files",
    errno.ENFILE: "raise the machine's limit of open files",
}


def start(config: Path | None, namesrv: str | None, log_format: LogFormat | None) -> int:
    """Run until SIGTERM or Ctrl-C; returns the exit status. Arguments replace values of the config
    file."""
    if config is None and namesrv is None:
        return _fail(
            "give a config file (-c FILE; docs/reference/configuration.md lists the keys), or at "
            "least a name server (-n HOST:PORT) to start a group of one member. A whole cluster "
            "for trying things out: mqcluster up --dir DIR",
            _EXIT_USAGE,
        )
    os.umask(OTHERS)
    try:
        settings = BrokerConfig() if config is None else load_config(config, BrokerConfig)
        if namesrv is not None:
            settings = msgspec.structs.replace(settings, namesrv_addr=namesrv)
        if log_format is not None:
            settings = msgspec.structs.replace(settings, log_format=log_format)
        configure_logging(settings.log_format, settings.log_level)
        settings.check()
        settings = settings.with_secret()
        _arm()
        if config is None:
            _say_defaults(settings)
    except ConfigError as error:
        return _fail(str(error), _EXIT_USAGE)
    return _run(settings)


def restore_store(copy: Path, config: Path) -> int:
    """Make the store of a config's replica of a copy; returns the exit status."""
    os.umask(OTHERS)
    try:
        settings = load_config(config, BrokerConfig)
        settings.check()
        done = restore(copy, settings)
    except (DledgerError, OSError) as error:
        return _fail(str(error), _EXIT_USAGE)
    made_at = datetime.fromtimestamp(done.made_at_ms // 1000, UTC).isoformat()
    sys.stdout.write(
        f"{settings.store_path_root_dir}: {settings.broker_name} up to entry {done.last_index}, as "
        f"it was at {made_at}. Restore the other members before you start this one.\n"
    )
    return 0


def _arm() -> None:
    """Take orders for failpoints from the starter of this process, in a chaos run."""
    folder = os.environ.get(VARIABLE)
    if folder is not None:
        from dledger.program.arming import arm  # noqa: PLC0415 - not in production

        arm(Path(folder))
        get_logger(__name__).warning("failpoints armed", folder=folder, remedy="not for production")


def _say_defaults(settings: BrokerConfig) -> None:
    """Without a config file, log the defaults that are in use."""
    sys.stderr.write(
        f"mqbroker: no config file: {settings.broker_name}, a group of one member, serves on "
        f"{settings.broker_ip1}:{settings.listen_port} and keeps its messages in "
        f"{Path(settings.store_path_root_dir).absolute()}\n"
    )


def _run(settings: BrokerConfig) -> int:
    problem: BaseException | None = None
    try:
        trio.run(run_broker, settings)
    except* (DledgerError, OSError) as group:
        problem = next(leaves(group))
    if problem is None:
        return 0
    if isinstance(problem, WrittenByNewer):
        return _fail(f"{problem}; then start the broker again", _EXIT_FAILED)
    if isinstance(problem, Fenced):
        return _fail(f"{problem}; {_remedy(problem)}, then start the broker again", _EXIT_FAILED)
    if isinstance(problem, PeerPortClosed):
        remedy = "stop what uses it, or change dLegerPeers on all members"
        return _fail(f"{problem}; {remedy}", _EXIT_USAGE)
    if isinstance(problem, OSError):
        return _fail(_os_problem(problem, settings), _EXIT_USAGE)
    return _fail(str(problem), _EXIT_USAGE)


def _remedy(fenced: Fenced) -> str:
    """The remedy for the error because of which a replica gave up."""
    cause: BaseException | None = fenced
    while cause is not None and not isinstance(cause, OSError):
        cause = cause.__cause__
    number = None if cause is None else cause.errno
    return _REMEDIES.get(number, "repair the disk")


def _os_problem(error: OSError, settings: BrokerConfig) -> str:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if is_loss(error):
        # Calls on an open file name none. No socket says such a thing, so it is of the store.
        where = error.filename or settings.store_path_root_dir
        return (
            f"{where}: {reason}; the file system is damaged: unmount it, check it (fsck), "
            "and start the broker again. What the check has lost the group repairs"
        )
    if error.filename is not None:
        return (
            f"{error.filename}: {reason}; make storePathRootDir "
            f"{settings.store_path_root_dir!r} a directory that this user can write to"
        )
    return (
        f"can't listen on {settings.client_host}:{settings.listen_port}: {reason}; stop what uses "
        f"it, or change {_address_keys(settings)}"
    )


def _address_keys(settings: BrokerConfig) -> str:
    """The keys that say where this replica listens for clients."""
    if settings.bind_address:
        return "bindAddress, or listenPort (and groupClientAddrs)"
    return "brokerIP1 and listenPort (and groupClientAddrs)"


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"mqbroker: {message}\n")
    return status
