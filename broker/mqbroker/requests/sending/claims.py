"""The users whose the names of producers are: who registers, writes or stages under one.

A name belongs to the user who registered it first, on the broker group where it is registered.
"""

from __future__ import annotations

from dledger.net import Connection
from dledger.observe import get_logger
from dledger.remoting.command import Command
from dledger.trust.guard import Guard, Mode
from mqbroker.leader.once import taken
from mqbroker.requests.core import Core
from mqbroker.state.producers import Claim

_log = get_logger(__name__)


def claim_to(core: Core, name: str, request: Command, connection: Connection) -> Claim:
    """The claim of the user of a request to a name. Refused if the name is another user's."""
    claim, owner = _claim_of(core.guard), core.machine.owner_of(name)
    if owner and owner != claim.user:
        refused = taken(name)
        if not claim.over:
            core.auditor.refused(request, core.door.who(request, connection), str(refused))
            raise refused
        if core.guard.mode is Mode.OBSERVE and not core.guard.asker.may_all:
            core.guard.refused += 1
            _log.info("would be refused", user=claim.user, reason=str(refused))
    return claim


def _claim_of(guard: Guard) -> Claim:
    """The user that claims a name. Holders of the cluster's secret claim it as nobody."""
    asker = guard.asker
    if guard.mode is Mode.OFF or asker.problem or asker.user is None:
        return Claim()
    return Claim(asker.name, guard.mode is not Mode.ENFORCE or asker.may_all)
