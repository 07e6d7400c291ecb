"""Copies of the replicas of a broker group, made by their brokers while they serve."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import anyio

from dledger.remoting.bodies import BrokerData
from dledger.remoting.headers import (
    ExportReplicaHeader,
    ExportReplicaResponseHeader,
    decode_header,
)
from mqclient import limits
from mqclient.admin.raft import ask_members
from mqclient.admin.requests import expect_success
from mqclient.admin.results import ExportedReplica
from mqclient.admin.session import Part, UnknownTarget, run_for_each
from mqclient.arguments import check_seconds
from mqclient.errors import ClientError


class ExportNotDone(ClientError):
    """A copy has begun and goes on by itself; the message says how far it is."""

    definite = False


class Replicas(Part):
    """Part `admin.replicas`: has brokers copy their replicas to their own disks."""

    async def export(
        self,
        broker: str,
        to: str,
        node_id: str | None = None,
        *,
        within_s: float = limits.EXPORT_S,
        on_progress: Callable[[str], None] = lambda line: None,
    ) -> tuple[ExportedReplica, ...]:
        """Copy all members of a group that answer, or one. Returns when the copies are made.

        `to` is a place below each broker's own `exportDir`, on its machine. Raises Refused with a
        broker's reason, UnknownTarget if no such member answers, ExportNotDone if it takes longer
        than `within_s`.
        """
        check_seconds("within_s", within_s)
        (group,) = await self._session.broker_groups(broker=broker)
        addresses = await self._members(group, node_id)
        header = ExportReplicaHeader(to=to, export_id=secrets.token_hex(16))

        async def one(address: str) -> ExportedReplica:
            return await self._export(group.broker_name, address, header, within_s, on_progress)

        return await run_for_each(one, addresses)

    async def _members(self, group: BrokerData, node_id: str | None) -> list[str]:
        infos = await ask_members(self._requests, group)
        known = {info.node_id: address for address, info in infos.items() if info is not None}
        if node_id is not None and node_id not in known:
            raise UnknownTarget(
                f"no member {node_id!r} of {group.broker_name} answers; those that do are "
                f"{', '.join(sorted(known)) or 'none'}"
            )
        return [known[name] for name in sorted(known) if node_id in (None, name)]

    async def _export(
        self,
        broker: str,
        address: str,
        header: ExportReplicaHeader,
        within_s: float,
        on_progress: Callable[[str], None],
    ) -> ExportedReplica:
        state: ExportReplicaResponseHeader | None = None
        with anyio.move_on_after(within_s):
            while True:
                answer = await self._requests.ask(address, header)
                expect_success(answer, "EXPORT_REPLICA", address)
                state = decode_header(ExportReplicaResponseHeader, answer)
                if state.is_done:
                    return ExportedReplica(
                        broker_name=broker,
                        node_id=state.node_id,
                        directory=state.directory,
                        segments=state.segments_done,
                        linked=state.linked,
                        copied_bytes=state.copied_bytes,
                        last_index=state.last_index,
                        first_position=state.first_position,
                        end_position=state.end_position,
                    )
                on_progress(_progress(state))
                await anyio.sleep(limits.EXPORT_POLL_S)
        far = _progress(state) if state is not None else f"{address} has not answered yet"
        raise ExportNotDone(
            f"a copy was begun, but is not done after {within_s:g} s: {far}. It goes on by itself; "
            "it is whole when export.json is in it"
        )


def _progress(state: ExportReplicaResponseHeader) -> str:
    return f"{state.node_id}: {state.segments_done} of {state.segments} segments"
