"""A server's contexts: for those that it accepts, clients and members, and for those it dials."""

from __future__ import annotations

import socket
import ssl

from dledger.limits import TLS_LOOK_S
from dledger.program.pulse import look
from dledger.tls.channel import Channel
from dledger.tls.files import accepting_context, dialling_context, own_validity
from dledger.tls.handshake import InTurn, at_once, begin, dial
from dledger.tls.options import ClientAuth, Mode, ServerOptions
from dledger.tls.rehearsal import rehearse
from dledger.tls.reloading import Reloading


class ServerContexts:
    """The present contexts of a server. Raises ConfigError if they can't be made."""

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._made = False
        self._reloading = Reloading(options.files, self._make)

    @property
    def problem(self) -> str:
        """Why the files as they are now are not used; empty if they are."""
        return self._reloading.problem

    @property
    def dialler(self) -> ServerContexts | None:
        """The contexts for dialling other servers' client ports; None for plain text."""
        return self if self.options.dials else None

    @property
    def taker(self) -> ServerContexts | None:
        """The taker of clients' connections; None if all clients speak plain text."""
        return None if self.options.mode is Mode.DISABLED else self

    @property
    def ends_s(self) -> float | None:
        """When the certificate in use ends, in Unix seconds; None if nothing tells."""
        return None if self._validity is None else self._validity.ends_s

    def _make(self) -> None:
        options, among_members = self.options, self.options.members is not Mode.DISABLED
        clients = accepting_context(options.files, options.client_auth)
        validity = own_validity(options.files) if options.files.certificate else None
        has_none = options.client_auth is ClientAuth.NONE
        figures = accepting_context(
            options.files, ClientAuth.NONE if has_none else ClientAuth.OPTIONAL
        )
        if among_members:
            members = accepting_context(options.files, ClientAuth.REQUIRE)
        if options.dials or among_members:
            dialled = dialling_context(options.files, check_names=options.check_names)
        if among_members and options.host and self._made:
            rehearse(members, dialled, options.host, options.files)
        self._clients, self._figures, self._made = clients, figures, True
        self._validity = validity
        if among_members:
            self._members = members
        if options.dials or among_members:
            self._dialled = dialled

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection that this server dials."""
        return self._dialled

    async def begin(
        self, sock: socket.socket, in_turn: InTurn = at_once
    ) -> Channel | socket.socket:
        """The channel to a client that has connected. Raises TlsFailed."""
        return await begin(sock, self.options.mode, self._clients, in_turn)

    async def begin_figures(
        self, sock: socket.socket, in_turn: InTurn = at_once
    ) -> Channel | socket.socket:
        """The channel to a client at the port for figures, where HTTP has an answer for clients
        that speak plain text or show no certificate; the port judges it. Raises TlsFailed."""
        return await begin(sock, Mode.PERMISSIVE, self._figures, in_turn)

    @property
    def ways_to_members(self) -> tuple[ServerContexts | None, ...]:
        """The ways to dial members, one after the other; None for plain text."""
        return (self, None) if self.options.members is Mode.PERMISSIVE else (self,)

    async def dial_member(self, sock: socket.socket, host: str) -> Channel:
        """Begin TLS with a member that was dialled. Raises TlsFailed."""
        return await dial(sock, self._dialled, host)

    async def begin_with_member(self, sock: socket.socket) -> Channel | socket.socket:
        """The channel to a member that has connected. Raises TlsFailed."""
        return await begin(sock, self.options.members, self._members)

    async def run(self) -> None:
        """Look after the files until cancelled."""
        while True:
            self._reloading.look()
            self._reloading.warn_of_end()
            await look(TLS_LOOK_S)
