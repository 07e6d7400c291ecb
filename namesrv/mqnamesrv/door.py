"""The requests that this name server takes from a sender. Pure.

Everybody may read routes. Brokers change them, and how far a broker is trusted depends on its
proof:

- *proven*: a broker that knows the cluster's secret (`dledger/trust/proof.py`) and signs each
request.
- *open*: any broker, if this name server has no secret. Then it listens on loopback only.
- *unsigned*: a broker without a proof, such as RocketMQ's own, if a setting allows it. Its terms
  are ignored, and it can't change a group with proven members.

Tools don't know the secret and can't sign. Their changes are taken from the addresses that a
setting names, by default from this machine only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from dledger.remoting.command import Command
from dledger.trust.accepting import NotLetIn, Proofs
from dledger.trust.admin import AdminAddresses
from dledger.trust.guard import Guard
from dledger.trust.rights import Look
from dledger.trust.rolling import Secrets
from dledger.trust.signing import NAME_SERVER_ID, TAG_FIELD, name_server_door
from dledger.trust.users import Users


class Trust(Enum):
    """How far a broker's request is trusted."""

    PROVEN = "proven"
    OPEN = "open"
    UNSIGNED = "unsigned"


class Door:
    """Decides which requests are allowed, by the connection, the request and the settings."""

    def __init__(
        self,
        secrets: Secrets,
        admin_addresses: AdminAddresses,
        nonce: Callable[[], bytes],
        *,
        lets_unsigned_in: bool,
    ) -> None:
        self.secrets = secrets
        self._admin = admin_addresses
        self._nonce = nonce
        self._lets_unsigned_in = lets_unsigned_in
        #: The proofs of the connections' other ends.
        self.proofs = Proofs(secrets, NAME_SERVER_ID, name_server_door, nonce)

    def trust_in(self, request: Command, connection_id: int) -> Trust:
        """How far a broker's request is trusted. Raises NotLetIn, and FrameError for a wrong tag,
        after which nothing on this connection can be trusted."""
        if not self.secrets:
            return Trust.UNSIGNED if self._lets_unsigned_in else Trust.OPEN
        proven = self.proofs.check(request, connection_id)
        if proven is not None:
            said = request.ext.get("clusterName"), request.ext.get("brokerName")
            if said != proven:
                raise NotLetIn(
                    f"this connection speaks for {proven[1]} of {proven[0]}, "
                    f"not for {said[1]!r} of {said[0]!r}"
                )
            return Trust.PROVEN
        if TAG_FIELD not in request.ext and self._lets_unsigned_in:
            return Trust.UNSIGNED
        raise NotLetIn(
            "brokers have to prove to this name server that they know the cluster's secret: give "
            "the broker the same secretFile. (RocketMQ's own brokers can't: "
            "allowUnsignedBrokers = true admits brokers that don't sign.)"
        )

    def guard(
        self, users: Callable[[], Iterable[Users]], look: Look, clock_ms: Callable[[], int]
    ) -> Guard:
        """The judge of users' requests."""
        return Guard(self.secrets, users, look, clock_ms, self._nonce())

    def check_admin(self, request: Command, host: str) -> None:
        """Raise NotLetIn for a change by a tool at an address that may make none."""
        if host not in self._admin:
            raise NotLetIn(
                f"request {request.code} changes this name server, and {host} may not: add it to "
                "adminAddresses of the name server, or run the tool where it may"
            )
