"""Encryption of a client's connections, if the application has asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.tls.options import AskedTls

if TYPE_CHECKING:
    from dledger.net.peer import Dialler


def dialler(tls: AskedTls) -> Dialler | None:
    """What servers are dialled with; None for plain text. Raises ConfigError, which names the
    file."""
    if tls is None or tls is False:
        return None
    from dledger.tls.clients import ClientContexts  # noqa: PLC0415 - ssl takes 10 ms to load

    return ClientContexts.of(tls)
