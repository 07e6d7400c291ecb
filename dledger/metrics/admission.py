"""Admission to a server's figures. Pure.

On loopback without a token whoever asks may, as with all that only reads, unless rights are
enforced. Otherwise a request proves itself: by the token (`Authorization: Bearer`), or by the name
and the password of a user who may `Get` the cluster (`Authorization: Basic`), as Prometheus's
`authorization` and `basic_auth` send them.

The port takes TLS as the server's port for clients does (`tls.server.mode`): in enforcing mode
nothing is answered in plain text. If clients need a certificate, figures need one too; whether the
server is well does not, since no supervisor's probe shows one.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from typing import Final

from dledger.metrics.requests import Asked
from dledger.tls.options import ClientAuth, ServerOptions
from dledger.tls.options import Mode as TlsMode
from dledger.trust.guard import Guard, Mode
from dledger.trust.secret import is_loopback

CHALLENGE: Final = 'Basic realm="figures", charset="UTF-8"'


class Admission:
    """The judge of one port."""

    def __init__(
        self,
        host: str,
        token: str,
        guard: Guard,
        cluster: Callable[[], str],
        tls: ServerOptions | None = None,
    ) -> None:
        self._open = is_loopback(host) and not token
        self._token = token.encode()
        self._guard = guard
        self._cluster = cluster
        self._tls_alone = tls is not None and tls.mode is TlsMode.ENFORCING
        self._certified = tls is not None and tls.client_auth is ClientAuth.REQUIRE

    def plain_refusal(self, asked: Asked) -> str | None:
        """Why a request gets no answer but a refusal; None if it may get one."""
        if self._tls_alone and not asked.encrypted:
            return "this port takes TLS alone: ask by https"
        return None

    def refusal(self, asked: Asked) -> str | None:
        """Why a request is not answered with figures; None if it is."""
        if self._certified and not asked.certified:
            return "show a certificate: clients need one (tls.server.need.client.auth)"
        if self._open and self._guard.mode is not Mode.ENFORCE:
            return None
        scheme, _, given = asked.authorization.partition(" ")
        if scheme.lower() == "bearer":
            right = hmac.compare_digest(given.strip().encode(), self._token)
            return None if self._token and right else "the token is not this server's"
        if scheme.lower() == "basic":
            return self._of_user(given.strip(), asked.source)
        return (
            "prove who asks: with the token of metricsTokenFile (Authorization: Bearer), or with a "
            "user's name and password (Basic)"
        )

    def _of_user(self, given: str, source: str) -> str | None:
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, ValueError):
            return "the name and password can't be read"
        return self._guard.password_refusal(name, password, source, self._cluster())
