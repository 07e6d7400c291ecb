"""`mqnamesrv`: serve a name server until it is told to stop.

Exit status 0 after SIGTERM or Ctrl-C, 2 if it can't start: one line on stderr says why.
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

from dledger.addresses import check_host
from dledger.errors import BadInput, ConfigError, leaves
from dledger.limits import OTHERS
from dledger.program.config import load_config
from dledger.program.console import let_reader_leave
from dledger.program.ending import BY_INPUT, sentence
from dledger.program.helping import FlowingHelp
from dledger.program.logs import configure_logging
from dledger.program.whole import Whole
from mqnamesrv.app import serve_until_signalled
from mqnamesrv.config import NamesrvConfig

EXIT_USAGE = 2

app = App(
    name="mqnamesrv",
    help="The name server: brokers register here, clients ask for routes."
    "\n\nFor example:\n\n    mqnamesrv\n    mqnamesrv -c namesrv.toml",
    help_format="plaintext",
    help_formatter=FlowingHelp(),
)


@app.default
def run(
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    port: Annotated[Whole | None, Parameter(name=["--port", "-p"])] = None,
    host: str | None = None,
) -> int:
    """Serve until SIGTERM or Ctrl-C.

    Parameters
    ----------
    config
        TOML file; `docs/reference/configuration.md` lists the keys.
    port
        Instead of listenPort (9876); 0 lets the system choose.
    host
        Instead of bindAddress (127.0.0.1).
    """
    os.umask(OTHERS)
    try:
        settings = NamesrvConfig() if config is None else load_config(config, NamesrvConfig)
        if port is not None:
            settings = msgspec.structs.replace(settings, listen_port=port)
        if host is not None:
            settings = msgspec.structs.replace(settings, bind_address=host)
        check_host(settings.bind_address, "bindAddress")
        configure_logging(settings.log_format, settings.log_level)
        return _serve(settings)
    except (BadInput, ValueError) as error:
        return _fail(str(error))


def _serve(settings: NamesrvConfig) -> int:
    problem: BaseException | None = None
    try:
        trio.run(serve_until_signalled, settings)
    except* (ConfigError, OSError) as group:
        problem = next(leaves(group))
    if problem is None:
        return 0
    if isinstance(problem, OSError):
        reason = os.strerror(problem.errno) if problem.errno else str(problem)
        return _fail(
            f"can't listen on {settings.bind_address} port {settings.listen_port}: {reason}; "
            "choose another port with -p, or another address with --host"
        )
    return _fail(str(problem))


def _fail(message: str) -> int:
    sys.stderr.write(f"mqnamesrv: {message}\n")
    return EXIT_USAGE


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command."""
    let_reader_leave()
    try:
        app(arguments, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        sys.exit(_fail(f"{sentence(error)} (--help shows the options)"))
    except (*BY_INPUT, ValueError) as error:
        sys.exit(_fail(sentence(error)))
