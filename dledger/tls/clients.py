"""A client's context for TLS: made of its files, or given by the application as it is."""

from __future__ import annotations

import ssl
from pathlib import Path

from dledger.limits import TLS_LOOK_S
from dledger.tls.files import dialling_context
from dledger.tls.options import AskedTls, Tls
from dledger.tls.reloading import Reloading
from dledger.world import steady_s


class ClientContexts:
    """The TLS context of a client now. Its files are looked at when it dials. Raises
    ConfigError."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._looked_at_s = steady_s()
        self._reloading: Reloading | None = None
        if tls.context is None:
            self._reloading = Reloading(tls.files(), self._make)
        else:
            self._context = tls.context

    @classmethod
    def of(cls, tls: AskedTls) -> ClientContexts | None:
        """The TLS options that an application has asked for; None for plain text. Raises
        ConfigError."""
        if tls is None or tls is False:
            return None
        if isinstance(tls, str | Path):
            return cls(Tls(ca=tls))
        return cls(Tls() if tls is True else tls)

    def _make(self) -> None:
        tls = self._tls
        self._context = dialling_context(
            tls.files(), verify=tls.verify, check_names=tls.check_names
        )

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection."""
        if self._reloading is not None and steady_s() - self._looked_at_s >= TLS_LOOK_S:
            self._looked_at_s = steady_s()
            self._reloading.look()
        return self._context
