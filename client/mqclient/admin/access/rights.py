"""Rights of users: entries of their policies, and why a request is allowed or refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Literal

import msgspec

from dledger.errors import BadInput, RemotingError
from dledger.remoting.bodies import BrokerData, decode_body, encode_body
from dledger.remoting.bodies.access import AclInfo, ObservedNeed, PolicyEntryInfo, PolicyInfo
from dledger.remoting.codes import RequestCode
from dledger.remoting.headers import CreateAclHeader, DeleteAclHeader, GetAclHeader, ListAclHeader
from dledger.trust.policies import (
    ANY,
    Entry,
    Known,
    Policies,
    depends_on_groups,
    entries_of,
    explained,
    resource,
)
from dledger.trust.rights import Action, Kind, Need
from mqclient.admin.access.suggest import Stranger, Suggestion, strangers, suggested
from mqclient.admin.access.users import Users, listed
from mqclient.admin.requests import expect_success
from mqclient.admin.session import Part, run_for_each

_SUBJECT = "User:"


class Grant(msgspec.Struct, frozen=True):
    """An entry of a user's policies, as a broker group has it."""

    broker_name: str
    user: str
    policy: str
    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...]
    decision: str


class Explained(msgspec.Struct, frozen=True):
    """Whether a user may do something on a broker group, and what decides that."""

    broker_name: str
    allowed: bool
    because: str


class Rights(Part):
    """Part `admin.rights`: grants, revokes and explains users' rights. Changes go to all groups
    that are chosen, and return their broker names."""

    async def grant(
        self,
        user: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        sources: Sequence[str] = (),
        decision: Literal["Allow", "Deny"] = "Allow",
        policy: Literal["Custom", "Default"] = "Custom",
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Allow or deny actions on resources ("Topic:Orders", "Group:*"), from some addresses or
        from everywhere. An entry of the same resource is replaced. Raises BadInput, Refused."""
        acl = asked_acl(user, resources, actions, sources, decision, policy)
        entries_of(acl)
        header = CreateAclHeader(_SUBJECT + user)
        return await self._change(header, encode_body(acl), cluster, broker)

    async def revoke(
        self,
        user: str,
        resource: str | None = None,
        *,
        policy: Literal["Custom", "Default"] | None = None,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[str, ...]:
        """Remove a user's entry of one resource, or all. Raises Refused if there is none."""
        header = DeleteAclHeader(_SUBJECT + user, policy, resource)
        return await self._change(header, b"", cluster, broker)

    async def list(
        self,
        subject: str = "",
        resource: str = "",
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[Grant, ...]:
        """The entries of users, with resources, whose names contain these texts."""
        header = ListAclHeader(subject or None, resource or None)

        async def found(group: BrokerData) -> Sequence[Grant]:
            answer = await self._requests.ask_leader(group, header)
            return [grant for acl in listed(answer, AclInfo) for grant in _grants(group, acl)]

        groups = await self._session.broker_groups(cluster, broker)
        return tuple(grant for some in await run_for_each(found, groups) for grant in some)

    async def of_user(
        self, user: str, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[Grant, ...]:
        """The entries of one user, by broker group. Raises Refused if there is no such user."""
        groups = await self._session.broker_groups(cluster, broker)
        found = await run_for_each(lambda group: self._of_user(user, group), groups)
        return tuple(grant for grants in found for grant in grants)

    async def _of_user(self, user: str, group: BrokerData) -> Sequence[Grant]:
        header = GetAclHeader(_SUBJECT + user)
        answer = await self._requests.ask_leader(group, header)
        if not len(answer.payload):
            return []
        return _grants(group, decode_body(AclInfo, answer.payload))

    async def explain(
        self,
        user: str,
        resource: str,
        action: str,
        source: str = "127.0.0.1",
        *,
        broker: str | None = None,
        cluster: str | None = None,
    ) -> tuple[Explained, ...]:
        """Whether a user may do one thing, from an address, and by which entry of its policies."""
        need = asked_need(resource, action)

        async def explain(group: BrokerData) -> Explained:
            name = group.broker_name
            state = next(iter(await Users(self._session).get(user, broker=name)), None)
            if state is None:
                return Explained(name, False, f"there is no user {user!r}")
            if not state.enabled:
                return Explained(name, False, f"the user {user!r} is disabled")
            if state.super_user:
                return Explained(name, True, f"{user!r} is a super user")
            grants = await self._of_user(user, group)
            entries = [Entry(g.policy, *msgspec.structs.astuple(g)[3:]) for g in grants]
            needs_groups = depends_on_groups(need)
            groups = await self._requests.group_configs(group) if needs_groups else ()
            known = Known(group.cluster, groups)
            return Explained(name, *explained(Policies(entries), need, source, known))

        return await run_for_each(explain, await self._session.broker_groups(cluster, broker))

    async def suggest(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[Suggestion, ...]:
        """The smallest entries that would let pass what brokers have seen since they started, while
        rights were observed or enforced. A member that can't be asked is noted in `left_out`."""
        return tuple(suggested(await self._observed(broker, cluster)))

    async def strangers(
        self, *, broker: str | None = None, cluster: str | None = None
    ) -> tuple[Stranger, ...]:
        """Senders that no entry helps: nobody knows who they are."""
        return tuple(strangers(await self._observed(broker, cluster)))

    async def _observed(self, broker: str | None, cluster: str | None) -> Iterable[ObservedNeed]:
        """Needs that members have seen, all of them: one that led before, or has passed requests
        on, knows more than the leader."""

        async def ask(address: str) -> Sequence[ObservedNeed]:
            try:
                answer = await self._requests.ask(address, RequestCode.LIST_OBSERVED)
            except RemotingError as error:
                self._session.left_out[address] = (
                    f"not shown: what {address} has observed, which can't be asked: {error}"
                )
                return ()
            expect_success(answer, RequestCode.LIST_OBSERVED, address)
            return listed(answer, ObservedNeed)

        groups = await self._session.broker_groups(cluster, broker)
        members = [address for group in groups for address in group.broker_addrs.values()]
        return chain.from_iterable(await run_for_each(ask, members))


def asked_acl(
    user: str,
    resources: Sequence[str],
    actions: Sequence[str],
    sources: Sequence[str],
    decision: str,
    policy: str,
) -> AclInfo:
    """The body of a request that grants these actions."""
    given = list(sources) or None
    entries = [PolicyEntryInfo(each, list(actions), given, decision) for each in resources]
    return AclInfo(_SUBJECT + user, [PolicyInfo(policy, entries)])


def asked_need(asked: str, action: str) -> Need:
    """The need about which `explain` is asked. Raises BadInput."""
    kind, _, name = resource(asked).partition(":")
    known = {each.lower(): each for each in Action if each is not Action.ALL}
    if ANY in asked or action.lower() not in known:
        raise BadInput(
            f"{asked!r} {action!r}: name one resource, as in Topic:Orders, and one of the actions "
            f"{', '.join(known.values())}"
        )
    return Need(Kind(kind), name, (known[action.lower()],))


def _grants(group: BrokerData, acl: AclInfo) -> list[Grant]:
    user = (acl.subject or "").removeprefix(_SUBJECT)
    return [
        Grant(
            group.broker_name,
            user,
            policy.policy_type or "",
            entry.resource or "",
            tuple(entry.actions or ()),
            tuple(entry.source_ips or ()),
            entry.decision or "",
        )
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    ]
