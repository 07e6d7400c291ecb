"""The parts that all of the administration shares: connections and the choice of broker groups.

Name servers of ours remember broker groups that are away, so what a call has not reached can be
named: a change that was meant for such a group, too, is PartlyDone, and what a question has left
out is noted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import anyio

from dledger.errors import DledgerError, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import BrokerData, ClusterInfo, TopicRouteData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import GetRouteinfoByTopicHeader
from dledger.tls.options import AskedTls
from dledger.trust.rolling import Secrets
from mqclient import limits
from mqclient.admin.requests import AdminRequests, Request, expect_success, raise_unless_all
from mqclient.connection.answers import route_in
from mqclient.connection.credentials import Credentials
from mqclient.connection.lifetime import Living, together
from mqclient.connection.retry import backoff_s
from mqclient.errors import ClientError, NoLeader, NoRoute
from mqclient.signatures import checked

log = get_logger(__name__)

_T = TypeVar("_T")
_U = TypeVar("_U")


class UnknownTarget(ClientError):
    """No cluster, broker or consumer group has that name; the message says which there are."""


class GroupAway(UnknownTarget):
    """A broker group that is known has no member here."""

    def __init__(self, broker_name: str) -> None:
        super().__init__(
            f"broker group {broker_name!r} is away: do it again once it is back, or retire it if "
            f"it will not come back (mqadmin wipeWritePerm -b {broker_name})"
        )


class Chosen(list[BrokerData]):
    """Broker groups that are there, and the names of others that are meant too, and are away."""

    def __init__(self, groups: Iterable[BrokerData], away: Iterable[str]) -> None:
        super().__init__(groups)
        self.away = {name: GroupAway(name) for name in sorted(away)}

    def check_all_there(self) -> None:
        """Raise PartlyDone if broker groups are away, after a change on the others."""
        raise_unless_all(self.away, [group.broker_name for group in self])


def away_in(info: ClusterInfo) -> dict[str, str]:
    """The clusters of the broker groups that are away, by their names."""
    absent = (info.absent_brokers or {}).items()
    return {name: cluster for name, cluster in absent if name not in info.broker_addr_table}


def holders(route: TopicRouteData) -> Chosen:
    """The broker groups of a topic. One that an operator has retired is not missed."""
    there = {group.broker_name for group in route.broker_datas}
    away = {row.broker_name for row in route.absent_queue_datas or ()}
    return Chosen(route.broker_datas, away - there - set(route.withdrawn or ()))


class SessionClient(Living):
    """A client that asks broker groups over a session's connections, which end with it."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session
        self._requests = session.requests
        self._timeout_s = session.timeout_s

    async def _start(self) -> None:
        await self._requests.__aenter__()

    async def _end(self, *, failed: bool) -> None:
        await self._requests.__aexit__(None, None, None)

    async def _answer(
        self, broker_name: str, command: Command, until_s: float, topic: str | None = None
    ) -> Command:
        """The answer of a broker group's leader, as soon as it has one; the command may be repeated
        for that. Raises RemotingError or NoLeader after `until_s`."""
        attempt = 0
        while True:
            try:
                return await self._requests.leaders.ask(
                    broker_name, command, self._timeout_s, topic
                )
            except (RemotingError, NoLeader) as error:
                if anyio.current_time() >= until_s:
                    raise
                log.info("waiting for a leader", broker=broker_name, reason=str(error))
            attempt += 1
            await anyio.sleep(backoff_s(attempt))


class AdminSession:
    """The connections that all parts use. `namesrv_addr` is "host:port;host:port".

    A request ends in `timeout_s`.
    """

    def __init__(
        self,
        namesrv_addr: str,
        timeout_s: float,
        secret: bytes | Secrets = b"",
        credentials: Credentials | None = None,
        tls: AskedTls = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.credentials = credentials
        self.requests = AdminRequests(namesrv_addr, timeout_s, secret, credentials, tls)
        #: Broker groups of which nothing was shown, each with a sentence that says so.
        self.left_out: dict[str, str] = {}
        #: Broker groups among them that are there, and can't be asked.
        self.unasked: set[str] = set()

    async def broker_groups(
        self,
        cluster: str | None = None,
        broker: str | None = None,
        *,
        only_one_cluster: bool = False,
    ) -> Chosen:
        """The broker groups of a cluster, of one name or member's address, or all.

        Changes, which are for `only_one_cluster`, hear of those that are away; else that is noted.
        Raises UnknownTarget if there is none.
        """
        info = await self.requests.cluster_info()
        away = away_in(info)
        groups = [group for _, group in sorted(info.broker_addr_table.items())]
        clusters = sorted({group.cluster for group in groups})
        if not groups:
            raise UnknownTarget(
                "no broker is registered with the name server: start one (mqbroker -c FILE "
                "-n NAMESRV), or check that it names this name server"
            )
        if only_one_cluster and cluster is None and broker is None and len(clusters) > 1:
            raise UnknownTarget(f"choose one of the clusters {', '.join(clusters)} with -c")
        chosen = [
            group
            for group in groups
            if cluster in (None, group.cluster)
            and broker in (None, group.broker_name, *group.broker_addrs.values())
        ]
        if not chosen:
            if broker is not None and broker in away:
                raise GroupAway(broker)
            names = ", ".join(f"{group.cluster}/{group.broker_name}" for group in groups)
            wanted = f"cluster {cluster!r}" if cluster is not None else f"broker {broker!r}"
            raise UnknownTarget(f"no {wanted} is registered; there are {names}")
        missed = [name for name, its in away.items() if broker is None and cluster in (None, its)]
        if only_one_cluster:
            return Chosen(chosen, (name for name in missed if away[name] == chosen[0].cluster))
        self._note(chosen, missed)
        return Chosen(chosen, ())

    async def note_away(self) -> None:
        """Note which broker groups are away, for a question that needs none."""
        info = await self.requests.cluster_info()
        self._note(info.broker_addr_table.values(), away_in(info))

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic. Raises NoRoute if no name server knows it."""
        header = GetRouteinfoByTopicHeader(topic=topic, accept_standard_json_only=True)
        answer = await self.requests.ask_name_server(header)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            with suppress(DledgerError):
                await self.note_away()
            away = f"; {', '.join(self.left_out)} may have it, and is away" if self.left_out else ""
            raise NoRoute(topic, "look at", f"no broker has registered it{away}")
        expect_success(answer, f"the route of {topic!r}", "the name server")
        route = route_in(answer)
        self._note(route.broker_datas, holders(route).away)
        return route

    def note_unasked(self, unasked: Mapping[str, str]) -> None:
        """Note which broker groups could not be asked, and why."""
        for name, reason in list(unasked.items())[: limits.GROUPS_MAX]:
            self.unasked.add(name)
            self.left_out[name] = (
                f"not shown: what broker group {name} has, which can't be asked: {reason}"
            )

    def _note(self, groups: Iterable[BrokerData], away: Iterable[str]) -> None:
        """Note whose part is not shown."""
        for group in groups:
            self.left_out.pop(group.broker_name, None)
        for name in away:
            if len(self.left_out) < limits.GROUPS_MAX:
                self.left_out[name] = f"not shown: what broker group {name} has, which is away"


class Part:
    """A part of the administration. It has no state, so a part can make another when it needs
    it."""

    def __init_subclass__(cls) -> None:
        checked(cls)

    def __init__(self, session: AdminSession) -> None:
        self._session = session
        self._requests = session.requests

    async def _change(
        self, request: Request, body: bytes, cluster: str | None, broker: str | None
    ) -> tuple[str, ...]:
        """Ask the leaders of a cluster, or of one broker group, for a change. Returns the broker
        names."""
        groups = await self._session.broker_groups(cluster, broker, only_one_cluster=True)
        return await tell_leaders(self._requests, groups, request, body)


async def tell_leaders(
    requests: AdminRequests, groups: Iterable[BrokerData], request: Request, body: bytes = b""
) -> tuple[str, ...]:
    """Ask the leaders of these groups for a change, as `change_each` does. Returns the broker
    names."""

    async def tell(group: BrokerData) -> str:
        await requests.ask_leader(group, request, body)
        return group.broker_name

    return await change_each(tell, groups, broker_name)


def broker_name(group: BrokerData) -> str:
    """The name of a broker group."""
    return group.broker_name


async def run_for_each(call: Callable[[_T], Awaitable[_U]], values: Iterable[_T]) -> tuple[_U, ...]:
    """The results of a call for each value, in order. Raises the first error, not in a group."""
    results: dict[int, _U] = {}
    values = tuple(values)

    async def one(number: int, value: _T) -> None:
        results[number] = await call(value)

    async with together() as tasks:
        for number, value in enumerate(values):
            tasks.start_soon(one, number, value)
    return tuple(results[number] for number in range(len(values)))


async def ask_each(
    call: Callable[[BrokerData], Awaitable[_U]], groups: Sequence[BrokerData]
) -> tuple[tuple[_U, ...], dict[str, str]]:
    """The results of a question to each broker group, and those that can't be asked, with the
    reason. Raises the first error if none can be."""
    errors: dict[str, Exception] = {}
    found: dict[str, _U] = {}

    async def one(group: BrokerData) -> None:
        try:
            found[group.broker_name] = await call(group)
        except (DledgerError, OSError) as error:
            errors[group.broker_name] = error

    await run_for_each(one, groups)
    if errors and not found:
        raise next(iter(errors.values()))
    return tuple(found[name] for name in sorted(found)), {
        name: str(error) for name, error in sorted(errors.items())
    }


async def change_each(
    call: Callable[[_T], Awaitable[_U | None]], values: Iterable[_T], name: Callable[[_T], str]
) -> tuple[_U, ...]:
    """The results of a change for each value, in order. Every one is tried.

    If all fail the first error is raised; if some do, or if `values` are Chosen and some groups are
    away, PartlyDone. A result of None is a value where nothing was to be changed: it is neither
    done nor failed, and left out.
    """
    errors: dict[str, Exception] = {}
    done: dict[str, _U] = {}

    async def one(value: _T) -> None:
        try:
            result = await call(value)
            if result is not None:
                done[name(value)] = result
        except (DledgerError, OSError) as error:
            errors[name(value)] = error

    away = values.away if isinstance(values, Chosen) else {}
    values = tuple(values)
    await run_for_each(one, values)
    raise_unless_all({**errors, **away}, list(done))
    return tuple(done[name(value)] for value in values if name(value) in done)


async def known_somewhere(ask: Callable[[_T], Awaitable[bool]], values: Iterable[_T]) -> bool:
    """Whether any of them says yes. One that can't be asked keeps no change from the others: its
    error is raised only if all others say no."""
    errors: list[Exception] = []

    async def one(value: _T) -> bool:
        try:
            return await ask(value)
        except (DledgerError, OSError) as error:
            errors.append(error)
            return False

    known = any(await run_for_each(one, values))
    if errors and not known:
        raise errors[0]
    return known
