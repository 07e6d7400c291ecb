"""The right to change others' work: members, leaders, settings, topics, groups, others' offsets.

A request is an administrator's if it comes from `adminAddresses` (by default this machine), or is
signed on a connection whose other end has proven that it knows the cluster's secret: a tool that
was given it, or a follower that passes on what it was asked by an administrator. Handlers declare
which requests must be (`Right.ADMIN`); where that depends on what is there, they ask themselves.

A follower's address says nothing of whose request it passes on. So what was passed on counts only
with a proof; or, in a group without a secret, whose peer ports are on loopback, with the follower's
word from an address that may administrate itself.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Final

from dledger import limits
from dledger.errors import FrameError
from dledger.net import Connection
from dledger.net.auditing import Auditor
from dledger.observe import get_logger
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.headers import SignOnResponseHeader, encode_header
from dledger.trust.accepting import NotLetIn, Proofs
from dledger.trust.admin import AdminAddresses
from dledger.trust.guard import Asker, Guard, Mode
from dledger.trust.proof import NONCE_BYTES
from dledger.trust.rights import OPEN, Rights
from dledger.trust.rolling import Secrets
from dledger.trust.signatures import ACCESS_KEY, CLUSTER_USER, body_hash
from dledger.trust.signing import BROKER_ID, TAG_FIELD, broker_door
from mqbroker.config import BrokerConfig
from mqbroker.refusal import Refused, no_permission, refusing
from mqbroker.requests.needs import by_all

FORWARDED_BY: Final = "forwardedBy"
FORWARDED_ADMIN: Final = "forwardedAdmin"
FORWARDED_USER: Final = "forwardedUser"
FORWARDED_SOURCE: Final = "forwardedSource"
PROVEN: Final = "proven"
_MARK: Final[list[ExtValue]] = []
"""The value in place of a verified tag, which counts once. No decoder can make this object."""
_log = get_logger(__name__)


def was_forwarded(request: Command) -> bool:
    """Whether another member has passed this request on already."""
    return FORWARDED_BY in request.ext


class AdminDoor:
    """The proofs on this broker's connections, and its setting."""

    def __init__(
        self, config: BrokerConfig, secrets: Secrets, guard: Guard, auditor: Auditor
    ) -> None:
        self._guard = guard
        self._auditor = auditor
        self._secrets = secrets
        self._own = config.names
        self._addresses = AdminAddresses(config.admin_addresses)
        nonce = partial(os.urandom, NONCE_BYTES)
        self._proofs = Proofs(secrets, BROKER_ID, broker_door, nonce)

    @by_all(RequestCode.PROVE, rights=OPEN)
    def prove(self, request: Command, connection: Connection) -> Command:
        """Prove to each other that both know the secret: its two steps."""
        with refusing((NotLetIn, FrameError), no_permission):
            return self._proofs.prove(request, connection.id)

    @by_all(RequestCode.SIGN_ON, rights=OPEN)
    def sign_on(self, request: Command, connection: Connection) -> Command:
        """The nonce that stamps on this connection must have."""
        answer = SignOnResponseHeader(self._guard.nonce(connection.id), body_hash())
        return request.reply(ext=encode_header(answer))

    def forget(self, connection_id: int) -> None:
        """Drop what a connection has proved, as it has closed."""
        self._proofs.forget(connection_id)
        self._guard.forget(connection_id)

    def admit(self, request: Command, connection: Connection, rights: Rights) -> None:
        """Judge a request by its user's rights. Refused if they are enforced, and too few."""
        guard = self._guard
        if was_forwarded(request) and guard.mode is not Mode.ENFORCE:
            return  # it is observed where it came from
        asker = self._asker(request, connection)
        reason = guard.refusal(asker, request, rights)
        if asker.wrong and guard.is_flood(connection.id):
            connection.close(f"{limits.WRONG_SIGNATURES_MAX} wrong signatures: {asker.problem}")
        if reason is None:
            return
        if guard.mode is Mode.ENFORCE:
            self._auditor.refused(request, (asker.name, asker.source), reason, rights)
            if asker.problem:
                connection.rest(guard.rest_s(connection.peer[0]))
            raise no_permission(reason)
        _log.info(
            "would be refused",
            code=request.code,
            user=asker.name,
            peer=connection.peer,
            reason=reason,
        )

    def _asker(self, request: Command, connection: Connection) -> Asker:
        """The asker of a request: by the secret, or by a user's signature."""
        source = connection.peer[0]
        if not self._is_proven(request, connection):
            asker = self._guard.identified(request, connection.id, source)
            self._marked(request, asker.may_all)
            return asker
        if was_forwarded(request):
            name, of = request.ext.get(FORWARDED_USER), request.ext.get(FORWARDED_SOURCE)
            return self._guard.known(str(name or ""), str(of or source))
        return Asker(CLUSTER_USER, source)

    def _is_proven(self, request: Command, connection: Connection) -> bool:
        """Whether the request has a right tag, which counts once. Refused for a wrong one, which
        ends the connection."""
        if request.ext.get(PROVEN) is _MARK:
            return True
        if request.ext.get(ACCESS_KEY) == CLUSTER_USER:
            asker = self._guard.identified(request, connection.id, connection.peer[0])
            return self._marked(request, not asker.problem)
        if TAG_FIELD not in request.ext:
            return False
        try:
            return self._marked(request, self._proofs.check(request, connection.id) == self._own)
        except FrameError as error:
            connection.close(str(error))
            self._auditor.refused(request, ("", connection.peer[0]), str(error))
            raise no_permission(str(error)) from error

    @staticmethod
    def _marked(request: Command, is_proven: bool) -> bool:
        if is_proven:
            kept = {name: value for name, value in request.ext.items() if name != TAG_FIELD}
            request.ext = kept | {PROVEN: _MARK}
        return is_proven

    def who(self, request: Command, connection: Connection) -> tuple[str, str]:
        """The user that asks for what is served now, "" for nobody that is known, and from where:
        of what a member has passed on, whoever asked that one."""
        asker, source = self._guard.asker, connection.peer[0]
        if self._guard.mode is not Mode.OFF and asker.name and not asker.problem:
            return asker.name, asker.source
        if request.ext.get(PROVEN) is not _MARK:
            return "", source
        return CLUSTER_USER, str(request.ext.get(FORWARDED_SOURCE) or source)

    def is_admin(self, request: Command, connection: Connection) -> bool:
        """Whether an administrator asks. Refused for a wrong tag, which ends the connection. Where
        rights are enforced, they have let the request in already, so it counts as an
        administrator's."""
        if self._guard.mode is Mode.ENFORCE or self._is_proven(request, connection):
            return True
        if was_forwarded(request) and (self._secrets or FORWARDED_ADMIN not in request.ext):
            return False
        return connection.peer[0] in self._addresses

    def check(self, request: Command, connection: Connection, rights: Rights) -> None:
        """Refused unless an administrator asks."""
        if not self.is_admin(request, connection):
            raise self.refusal(request, connection, rights)

    def refusal(self, request: Command, connection: Connection, rights: Rights) -> Refused:
        """The answer to whoever may not."""
        host = connection.peer[0]
        _log.info("not let in", code=request.code, peer=connection.peer)
        self._auditor.refused(request, self.who(request, connection), "adminAddresses", rights)
        return no_permission(
            f"request {request.code} changes others' work, and {host} may not: run the tool where "
            "it may, add that address to adminAddresses of the brokers, or give the tool the "
            "cluster's secret (--secret-file)"
        )
