"""What every part of the administration shares: connections and the choice of broker groups."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from dledger.errors import DledgerError
from dledger.remoting.bodies import BrokerData, TopicRouteData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.headers import GetRouteinfoByTopicHeader
from dledger.tls.options import AskedTls
from mqclient.admin.requests import AdminRequests, expect_success, raise_unless_all
from mqclient.connection.answers import route_in
from mqclient.connection.credentials import Credentials
from mqclient.connection.lifetime import together
from mqclient.errors import ClientError, NoRoute
from mqclient.signatures import checked

_T = TypeVar("_T")
_U = TypeVar("_U")


class UnknownTarget(ClientError):
    """No cluster, broker or consumer group has that name; the message says which there are."""


class AdminSession:
    """The connections that all parts use. `namesrv_addr` is "host:port;host:port".

    A request ends in `timeout_s`.
    """

    def __init__(
        self,
        namesrv_addr: str,
        timeout_s: float,
        secret: bytes = b"",
        credentials: Credentials | None = None,
        tls: AskedTls = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.credentials = credentials
        self.requests = AdminRequests(namesrv_addr, timeout_s, secret, credentials, tls)

    async def broker_groups(
        self,
        cluster: str | None = None,
        broker: str | None = None,
        *,
        only_one_cluster: bool = False,
    ) -> list[BrokerData]:
        """The broker groups of a cluster, of one name or member's address, or all.

        Raises UnknownTarget if there is none.
        """
        info = await self.requests.cluster_info()
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
            names = ", ".join(f"{group.cluster}/{group.broker_name}" for group in groups)
            wanted = f"cluster {cluster!r}" if cluster is not None else f"broker {broker!r}"
            raise UnknownTarget(f"no {wanted} is registered; there are {names}")
        return chosen

    async def route(self, topic: str) -> TopicRouteData:
        """The route of a topic. Raises NoRoute if no name server knows it."""
        header = GetRouteinfoByTopicHeader(topic=topic, accept_standard_json_only=True)
        answer = await self.requests.ask_name_server(header)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRoute(topic, "look at", "no broker has registered it")
        expect_success(answer, f"the route of {topic!r}", "the name server")
        return route_in(answer)


class Part:
    """One part of the administration. It has no state, so a part can make another when it needs
    it."""

    def __init_subclass__(cls) -> None:
        checked(cls)

    def __init__(self, session: AdminSession) -> None:
        self._session = session
        self._requests = session.requests


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


async def change_each(
    call: Callable[[_T], Awaitable[_U]], values: Iterable[_T], name: Callable[[_T], str]
) -> tuple[_U, ...]:
    """The results of a change for each value, in order. Every one is tried.

    If all fail the first error is raised; if some do, PartlyDone.
    """
    errors: dict[str, Exception] = {}
    done: dict[str, _U] = {}

    async def one(value: _T) -> None:
        try:
            done[name(value)] = await call(value)
        except (DledgerError, OSError) as error:
            errors[name(value)] = error

    values = tuple(values)
    await run_for_each(one, values)
    raise_unless_all(errors, list(done))
    return tuple(done[name(value)] for value in values)
