"""Takes over the secrets of a changed secretFile, once no other server is locked out by it.

`dledger.trust.rolling` decides. The other members and the name servers are asked over their ports
for clients, by a proof that offers the present and the wanted secrets; connections that stand are
not touched. Until all have answered, the file waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from dledger.addresses import parse_address
from dledger.errors import AppendError, BadInput, DledgerError
from dledger.limits import SECRET_LOOK_S
from dledger.net import connect_peer
from dledger.net.proving import Prover
from dledger.program.pulse import look
from dledger.trust.proof import Door
from dledger.trust.rolling import Heard, Secrets, refusal
from dledger.trust.secret import SecretFile
from dledger.trust.signing import BROKER_ID, NAME_SERVER_ID, broker_door, name_server_door
from dledger.trust.users import unwrapped
from mqbroker import limits
from mqbroker.refusal import Refused
from mqbroker.requests.core import Core


class Rolling:
    """Looks after a replica's secretFile. `wrap_anew` has a leader wrap passwords with the first
    secret."""

    def __init__(self, core: Core, wrap_anew: Callable[[], Awaitable[None]]) -> None:
        self._core = core
        self._wrap_anew = wrap_anew
        self._file = SecretFile(Path(core.file_config.secret_file), core.secrets)

    async def run(self) -> None:
        """Look at the file until cancelled; return if there is none."""
        if not self._core.file_config.secret_file:
            return
        while True:
            wanted = self._file.wanted()
            if wanted is not None:
                await self._consider(wanted)
            with suppress(Refused, AppendError):  # then another replica leads, and does it
                await self._wrap_anew()
            await look(SECRET_LOOK_S)

    async def _consider(self, wanted: tuple[bytes, ...]) -> None:
        present = self._core.secrets.valid
        offered = Secrets(*dict.fromkeys((*wanted, *present)))
        reason = refusal(
            present, wanted, await self._heard(offered), await self._unreadable(present, wanted)
        )
        if reason is None:
            self._file.take(wanted)
        else:
            self._file.refuse(reason)

    async def _unreadable(self, present: tuple[bytes, ...], wanted: tuple[bytes, ...]) -> list[str]:
        """Users whose passwords only a secret that would go can read."""
        found = []
        for user in self._core.machine.users.dump():
            if unwrapped(user, wanted) is None and unwrapped(user, present) is not None:
                found.append(user.name)
            await trio.lowlevel.checkpoint()
        return found

    async def _heard(self, offered: Secrets) -> list[Heard]:
        """The answers of the other members and the name servers, all asked at the same time."""
        config, role = self._core.file_config, self._core.role
        own = config.names
        heard: list[Heard] = []
        async with trio.open_nursery() as nursery:
            for node_id, address in role.addresses.items():
                if node_id != role.node_id:
                    ask = partial(self._ask, broker_door(*own), BROKER_ID, offered, heard)
                    nursery.start_soon(ask, f"member {node_id}", address)
            for host, port in config.name_servers():
                ask = partial(self._ask, name_server_door(*own), NAME_SERVER_ID, offered, heard)
                nursery.start_soon(ask, f"name server {host}:{port}", f"{host}:{port}")
        return sorted(heard)

    async def _ask(
        self,
        door: Door,
        server_id: str,
        offered: Secrets,
        heard: list[Heard],
        name: str,
        address: str,
    ) -> None:
        core, timeout_s = self._core, limits.REGISTER_TIMEOUT_S
        prover = Prover(offered, *core.file_config.names, core.role.node_id)
        try:
            host, port = parse_address(address)
            async with connect_peer(host, port, timeout_s, tls=core.dialler) as peer:
                has = await prover.shared(peer, door, server_id, timeout_s)
        except (DledgerError, BadInput, OSError) as error:
            heard.append(Heard(name, None, str(error)))
        else:
            if has is not None:  # a server without a secret keeps nobody out
                heard.append(Heard(name, has))
