"""tls check: how a port is encrypted, and which end refuses what."""

from __future__ import annotations

from typing import Annotated, Literal

import anyio
from cyclopts import Parameter

from dledger.addresses import parse_address
from dledger.errors import BadInput, ConfigError
from mqclient.admin.access.encryption import check_tls
from mqclient.commands.terminal.options import DEFAULTS, Common
from mqclient.commands.terminal.output import Table, joined

Address = Annotated[str, Parameter(help="The server, as host:port.")]


def tls(action: Literal["check"], address: Address, /, *, common: Common = DEFAULTS) -> None:
    """Check how a server's port is encrypted, and which end refuses the connection.

    Connects twice, by plain text and by TLS, and changes nothing. Exit status 1 if TLS fails.

    For example:

        mqadmin tls check 127.0.0.1:10911
    """
    assert action == "check", "there is no other"
    try:
        host, port = parse_address(address)
    except BadInput as error:
        raise ConfigError(f"{address!r}: {error}; expected host:port") from error
    found = anyio.run(check_tls, host, port, common.encryption() or True, common.timeout_s)
    rows = [
        ("plain text", found.plain),
        ("TLS", found.tls),
        ("refused by", found.refused_by),
        ("version", found.version),
        ("names", joined(found.names)),
        ("valid until", found.valid_until),
    ]
    common.show("tls", found, Table((address, ""), rows))
    if found.refused_by:
        raise SystemExit(1)
