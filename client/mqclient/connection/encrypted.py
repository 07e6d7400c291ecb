"""Encryption of a client's connections, if the application has asked for it."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING

from dledger.tls.options import AskedTls, Tls
from mqclient.signatures import accepts, wrong

if TYPE_CHECKING:
    from dledger.net.peer import Dialler


def dialler(tls: AskedTls) -> Dialler | None:
    """The TLS options for dialling servers; None for plain text. Raises ConfigError, which names
    the file, and BadInput for a field of another type: `verify=None` would verify nothing."""
    if tls is None or tls is False:
        return None
    import ssl  # noqa: PLC0415 - takes 10 ms to load

    from dledger.tls.clients import ClientContexts  # noqa: PLC0415

    hints = typing.get_type_hints(Tls, localns={"ssl": ssl}) if isinstance(tls, Tls) else {}
    for name, hint in hints.items():
        if not accepts(hint, value := getattr(tls, name)):
            raise wrong(name, value, hint)
    return ClientContexts.of(tls)
