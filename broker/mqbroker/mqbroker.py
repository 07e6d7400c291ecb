"""`mqbroker`: run one replica of a broker group until it is told to stop.

Exit status 0 after SIGTERM or Ctrl-C; 2 if it can't start; 1 if its disk fails while it runs. One
line on stderr says why, and what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from dledger.program.console import let_reader_leave
from dledger.program.ending import BY_INPUT, sentence
from dledger.program.helping import FlowingHelp
from dledger.program.logs import LogFormat

app = App(
    name="mqbroker",
    help="Run one replica of a broker group.\n\n"
    "For example:\n\n    mqbroker -c broker.toml\n    mqbroker -n 127.0.0.1:9876",
    help_format="plaintext",
    help_formatter=FlowingHelp(),
)


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
        TOML file; `docs/reference/configuration.md` lists the keys.
    namesrv
        Instead of namesrvAddr: `host:port;host:port`.
    log_format
        Instead of logFormat.
    """
    # Imported here, since --help needs neither the log nor its libraries.
    from mqbroker.starting import start  # noqa: PLC0415

    return start(config, namesrv, log_format)


@app.command
def restore(
    copy: Path,
    /,
    *,
    config: Annotated[Path, Parameter(name=["--config", "-c"])],
) -> int:
    """Create this replica's store from a copy, if all replicas of the broker group are lost.

    Do this for each member of the broker group, preferably from the same copy, and start all
    members. Messages that were sent after the copy was made are lost. While a majority of the
    broker group is alive, start a lost replica with an empty store instead: it copies everything
    from the others.

    For example:

        mqbroker restore nightly/monday -c broker.toml

    Parameters
    ----------
    copy
        A folder that `mqadmin exportReplica` has made.
    config
        The replica's config file. Its store must be empty, or not there.
    """
    from mqbroker.starting import restore_store  # noqa: PLC0415 - as above

    return restore_store(copy, config)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command."""
    let_reader_leave()
    try:
        app(arguments, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        sys.stderr.write(f"mqbroker: {sentence(error)} (--help shows the options)\n")
        sys.exit(2)
    except (*BY_INPUT, ValueError) as error:
        sys.stderr.write(f"mqbroker: {sentence(error)}\n")
        sys.exit(2)
