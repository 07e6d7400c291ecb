"""Broker groups: the registered brokers, their roles, and what each reports about itself."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dledger.errors import RemotingError
from dledger.remoting.bodies import BrokerData, KVTable, decode_body
from dledger.remoting.codes import RequestCode
from dledger.remoting.headers import GroupInfoHeader, GroupInfoResponseHeader, decode_header
from mqclient.admin.requests import expect_success
from mqclient.admin.results import BrokerRuntime, BrokerState
from mqclient.admin.session import Part, change_each, run_for_each
from mqclient.connection.routing import LEADER_ID


class Brokers(Part):
    """Part `admin.brokers`: lists brokers and their figures, and asks them to clean up."""

    async def list(self, cluster: str | None = None) -> tuple[BrokerState, ...]:
        """Every registered broker, sorted; those that don't answer are shown as unreachable."""
        members = [
            (group, broker_id, address)
            for group in await self._session.broker_groups(cluster)
            for broker_id, address in sorted(group.broker_addrs.items())
        ]
        return await run_for_each(self._broker_state, members)

    async def status(
        self, broker: str | None = None, cluster: str | None = None
    ) -> tuple[BrokerRuntime, ...]:
        """The figures that brokers report: of the broker with this address, of the leader of a
        broker name, or of all leaders."""
        if broker is not None and ":" in broker:
            answer = await self._requests.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO)
            expect_success(answer, "GET_BROKER_RUNTIME_INFO", broker)
            return (BrokerRuntime("", broker, decode_body(KVTable, answer.payload).table),)
        groups = await self._session.broker_groups(cluster, broker)

        async def figures(group: BrokerData) -> BrokerRuntime:
            answer = await self._requests.ask_leader(group, RequestCode.GET_BROKER_RUNTIME_INFO)
            table = decode_body(KVTable, answer.payload).table
            return BrokerRuntime(group.broker_name, self._requests.leader(group), table)

        return await run_for_each(figures, groups)

    async def clean(
        self, code: RequestCode, broker: str | None, cluster: str | None
    ) -> tuple[str, ...]:
        """Ask brokers to clean up (CLEAN_...); by address, or all of a cluster. Returns the
        addresses of those that did.

        Stock brokers may have something to clean; ours have not.
        """
        addresses = [broker] if broker is not None and ":" in broker else None
        if addresses is None:
            groups = await self._session.broker_groups(cluster, broker)
            addresses = sorted(a for group in groups for a in group.broker_addrs.values())

        async def clean(address: str) -> str:
            expect_success(await self._requests.ask(address, code), code.name, address)
            return address

        return await change_each(clean, addresses, str)

    async def _broker_state(self, member: tuple[BrokerData, int, str]) -> BrokerState:
        group, broker_id, address = member
        try:
            info = await self._requests.ask(address, GroupInfoHeader())
            runtime = await self._requests.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except RemotingError:
            return BrokerState(group.cluster, group.broker_name, broker_id, address, "unreachable")
        return state_of(
            member,
            None if info.code else decode_header(GroupInfoResponseHeader, info),
            {} if runtime.code else decode_body(KVTable, runtime.payload).table,
        )


def state_of(
    member: tuple[BrokerData, int, str],
    info: GroupInfoResponseHeader | None,
    figures: Mapping[str, str],
) -> BrokerState:
    """A row of the cluster list. Stock brokers have no `info`: their role follows from the id."""
    group, broker_id, address = member
    state = BrokerState(
        cluster=group.cluster,
        broker_name=group.broker_name,
        broker_id=broker_id,
        address=address,
        role="leader" if broker_id == LEADER_ID else "follower",
        # Ours say which release of RocketMQ they answer like, and which of ours they are.
        version=figures.get("dledgerVersion") or figures.get("brokerVersionDesc", ""),
        in_per_s=_first_number(figures.get("putTps", "")),
        out_per_s=_first_number(figures.get("getTransferredTps", "")),
    )
    if info is None:
        return state
    return msgspec.structs.replace(
        state,
        role=info.role,
        term=info.term,
        log_end_bytes=info.end_position,
        behind_entries=info.last_index - info.applied_index,
    )


def _first_number(text: str) -> float | None:
    """The first of the blank-separated rates that brokers report: the last ten seconds. None if
    there is none: the user may not see it."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return None
