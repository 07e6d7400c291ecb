"""auditLog: who changed what, and who was refused, by a server's files or over the network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from dledger.errors import ConfigError
from dledger.program.audit_log import AuditLog
from dledger.program.whole import Whole
from dledger.trust.audit import AuditLine
from mqclient import limits
from mqclient.commands.terminal.options import DEFAULTS, Common
from mqclient.commands.terminal.output import Table, joined, moment
from mqclient.commands.terminal.times import Begin, parse_time

Folder = Annotated[
    Path | None,
    Parameter(name="--dir", help="The server's folder of audit logs: auditLogDir, or STORE/audit."),
]
Server = Annotated[
    str | None,
    Parameter(
        name="--server",
        help="Or a broker or name server to ask, host:port. A super user may, or the secret.",
    ),
]
Count = Annotated[Whole, Parameter(validator=Number(gte=1), help="How many lines: the last ones.")]


def audit_log(
    *,
    directory: Folder = None,
    server: Server = None,
    begin: Begin = "0",
    of_user: Annotated[str | None, Parameter(help="Only requests of this user.")] = None,
    refused: Annotated[bool, Parameter(help="Only refused requests.")] = False,
    count: Count = limits.AUDIT_LINES_SHOWN,
    common: Common = DEFAULTS,
) -> None:
    """Show the changes and refusals in a server's audit log, oldest first.

    For example:

        mqadmin auditLog --dir store/audit
        mqadmin auditLog --server 127.0.0.1:10911 --refused
    """
    if (directory is None) == (server is None):
        raise ConfigError("name --dir, a folder of audit logs, or --server, host:port")
    begin_ms = parse_time(begin)
    if server is not None:
        address = server
        found: Sequence[AuditLine] = common.ask(
            lambda admin: admin.audit.lines(
                address, begin_ms=begin_ms, user=of_user, refused=refused, count=count
            )
        )
    else:
        found = _in_folder(directory, begin_ms, of_user, refused=refused)[-count:]
    rows = [
        (
            moment(line.time_ms),
            line.server,
            line.user,
            line.source,
            line.name or line.code,
            joined(line.objects),
            line.verdict,
            line.times,
            line.reason,
        )
        for line in found
    ]
    headers = ("when", "server", "user", "from", "request", "objects", "verdict", "times", "reason")
    common.show("auditLog", found, Table(headers, rows))


def _in_folder(
    directory: Path | None, begin_ms: int, user: str | None, *, refused: bool
) -> Sequence[AuditLine]:
    if directory is None or not directory.is_dir():
        raise ConfigError(f"{directory} is not a folder: name auditLogDir, or STORE/audit")
    return [
        line for line in AuditLog(directory).read(begin_ms) if line.is_wanted(user, refused=refused)
    ]
