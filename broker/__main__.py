"""`mqbroker`: run one replica of a broker group until it is told to stop.

Exit status 0 after SIGTERM or Ctrl-C; 2 if it can't start; 1 if its disk fails while it runs. One
line on stderr says why, and what to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import trio
from cyclopts import App, CycloptsError, Parameter

from broker.app import run_broker
from broker.config import BrokerConfig
from dledger.config import load_config
from dledger.errors import ConfigError, DledgerError, Fenced, leaves
from dledger.observe import LogFormat, configure_logging

_EXIT_FAILED = 1
_EXIT_USAGE = 2

app = App(name="mqbroker", help="One replica of a broker group.")


@app.default
def run(
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    namesrv: Annotated[str | None, Parameter(name=["--namesrv", "-n"])] = None,
    log_format: LogFormat | None = None,
) -> int:
    """Run until SIGTERM or Ctrl-C.

    Parameters
    ----------
    config
        TOML file; `docs/broker.md` lists the keys.
    namesrv
        Instead of namesrvAddr: `host:port;host:port`.
    log_format
        Instead of logFormat.
    """
    try:
        settings = BrokerConfig() if config is None else load_config(config, BrokerConfig)
        if namesrv is not None:
            settings = msgspec.structs.replace(settings, namesrv_addr=namesrv)
        if log_format is not None:
            settings = msgspec.structs.replace(settings, log_format=log_format)
        configure_logging(settings.log_format, settings.log_level)
        settings.check()
    except ConfigError as error:
        return _fail(str(error), _EXIT_USAGE)
    return _run(settings)


def _run(settings: BrokerConfig) -> int:
    problem: BaseException | None = None
    try:
        trio.run(run_broker, settings)
    except* (DledgerError, OSError) as group:
        problem = next(leaves(group))
    if problem is None:
        return 0
    if isinstance(problem, Fenced):
        return _fail(f"{problem}; repair the disk, then start the broker again", _EXIT_FAILED)
    if isinstance(problem, OSError):
        return _fail(_os_problem(problem, settings), _EXIT_USAGE)
    return _fail(str(problem), _EXIT_USAGE)


def _os_problem(error: OSError, settings: BrokerConfig) -> str:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.filename is not None:
        return (
            f"{error.filename}: {reason}; make storePathRootDir "
            f"{settings.store_path_root_dir!r} a directory that this user can write to"
        )
    if "peer port" in str(error):
        return f"{error.strerror}; stop what uses it, or change dLegerPeers on all members"
    return (
        f"can't listen on {settings.broker_ip1}:{settings.listen_port}: {reason}; "
        "stop what uses it, or change brokerIP1 and listenPort (and groupClientAddrs)"
    )


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"mqbroker: {message}\n")
    return status


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command."""
    try:
        app(arguments, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        sys.exit(_fail(f"{error} (--help shows the options)", _EXIT_USAGE))


if __name__ == "__main__":
    main()
