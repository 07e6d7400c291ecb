"""auditLog: who changed what, and who was refused, from a server's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from dledger.errors import ConfigError
from dledger.program.audit_log import AuditLog
from dledger.program.whole import Whole
from mqclient import limits
from mqclient.commands.terminal.options import DEFAULT_OUTPUT, Output
from mqclient.commands.terminal.output import Table, joined, moment
from mqclient.commands.terminal.times import Begin, parse_time

Folder = Annotated[
    Path,
    Parameter(name="--dir", help="The server's folder of audit logs: auditLogDir, or STORE/audit."),
]
Count = Annotated[Whole, Parameter(validator=Number(gte=1), help="How many lines: the last ones.")]


def audit_log(
    *,
    directory: Folder,
    begin: Begin = "0",
    user: Annotated[str | None, Parameter(help="Only requests of this user.")] = None,
    refused: Annotated[bool, Parameter(help="Only refused requests.")] = False,
    count: Count = limits.AUDIT_LINES_SHOWN,
    output: Output = DEFAULT_OUTPUT,
) -> None:
    """Show the changes and refusals in a server's audit log, oldest first.

    For example:

        mqadmin auditLog --dir store/audit
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a folder: name auditLogDir, or STORE/audit")
    found = [
        line
        for line in AuditLog(directory).read(parse_time(begin))
        if user in (None, line.user) and (not refused or line.verdict == "refused")
    ][-count:]
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
    output.show("auditLog", found, Table(headers, rows))
