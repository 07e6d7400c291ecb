"""Who may change others' work: members, leaders, settings, topics, groups, others' offsets.

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

from dledger.errors import FrameError
from dledger.net import Connection
from dledger.net.serving import Right, serves
from dledger.observe import get_logger
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.trust.accepting import NotLetIn, Proofs
from dledger.trust.admin import AdminAddresses
from dledger.trust.proof import NONCE_BYTES
from dledger.trust.signing import BROKER_ID, TAG_FIELD, broker_door
from mqbroker.config import BrokerConfig
from mqbroker.refusal import Refused
from mqbroker.requests.needs import Needs

FORWARDED_BY: Final = "forwardedBy"
FORWARDED_ADMIN: Final = "forwardedAdmin"
_log = get_logger(__name__)


class AdminDoor:
    """The proofs on this broker's connections, and its setting."""

    def __init__(self, config: BrokerConfig) -> None:
        self._secret = config.d_leger_secret.encode()
        self._own = config.broker_cluster_name, config.broker_name
        self._addresses = AdminAddresses(config.admin_addresses)
        nonce = partial(os.urandom, NONCE_BYTES)
        self._proofs = Proofs(self._secret, BROKER_ID, broker_door, nonce)

    @serves(RequestCode.PROVE, needs=Needs.NOTHING, right=Right.ANYONE)
    def prove(self, request: Command, connection: Connection) -> Command:
        """Prove to each other that both know the secret: its two steps."""
        try:
            return self._proofs.prove(request, connection.id)
        except (NotLetIn, FrameError) as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from error

    def forget(self, connection_id: int) -> None:
        """A connection is gone."""
        self._proofs.forget(connection_id)

    def is_admin(self, request: Command, connection: Connection) -> bool:
        """Whether an administrator asks. Refused for a wrong tag, which ends the connection."""
        if TAG_FIELD in request.ext:
            try:
                if self._proofs.check(request, connection.id) == self._own:
                    return True
            except FrameError as error:
                connection.close(str(error))
                raise Refused(ResponseCode.NO_PERMISSION, str(error)) from error
        if FORWARDED_BY in request.ext and (self._secret or FORWARDED_ADMIN not in request.ext):
            return False
        return connection.peer[0] in self._addresses

    def check(self, request: Command, connection: Connection) -> None:
        """Refused unless an administrator asks."""
        if not self.is_admin(request, connection):
            raise self.refusal(request, connection)

    def refusal(self, request: Command, connection: Connection) -> Refused:
        """The answer to whoever may not."""
        host = connection.peer[0]
        _log.info("not let in", code=request.code, peer=connection.peer)
        return Refused(
            ResponseCode.NO_PERMISSION,
            f"request {request.code} changes others' work, and {host} may not: run the tool where "
            "it may, add that address to adminAddresses of the brokers, or give the tool the "
            "cluster's secret (--secret-file)",
        )
