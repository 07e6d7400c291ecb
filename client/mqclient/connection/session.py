"""The session of a producer or a consumer: connections, routes, leaders and heartbeats.

Routes are fetched when a topic is first used and refreshed every few seconds; that of a topic which
a broker declined, soon. Everything runs in one task group that ends with the session.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio
from anyio.abc import TaskGroup

from dledger.addresses import parse_addresses
from dledger.errors import BadInput, RemotingError
from dledger.remoting.bodies import TopicRouteData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import UnregisterClientHeader, encode_header
from dledger.remoting.message import DEFAULT_TOPIC
from dledger.tls.options import AskedTls
from dledger.world import steady_s, world
from mqclient import limits
from mqclient.connection.credentials import Credentials
from mqclient.connection.heartbeats import Heartbeats
from mqclient.connection.identity import local_host_towards, make_client_id
from mqclient.connection.leaders import LeaderFinder
from mqclient.connection.lifetime import Living, together
from mqclient.connection.peers import PeerPool, ServerRequest
from mqclient.connection.routing import Route, RouteTable
from mqclient.connection.signals import Wakeup
from mqclient.errors import ClientClosed, NoRoute, Refused
from mqclient.metrics import MeasuredClient


class Session(Living):
    """The presence of one client. `on_request` may answer requests of servers; `measured` begins
    and ends with the session.

    Its `host` and `client_id` are made when it is opened: a process may fork before that, and each
    child opens a copy.
    """

    def __init__(
        self,
        namesrv_addr: str,
        on_request: ServerRequest | None = None,
        credentials: Credentials | None = None,
        tls: AskedTls = None,
        measured: MeasuredClient | None = None,
    ) -> None:
        self.name_servers = parse_addresses(namesrv_addr)[: limits.NAME_SERVERS_MAX]
        self.host = ""
        self._client_id = ""
        self.routes = RouteTable()
        self.pool = PeerPool(self._asked, credentials, tls)
        self.finder = LeaderFinder(self.pool, self.routes, self.name_servers)
        self.heartbeats = Heartbeats(self.pool, self.routes)
        self.on_route_change: list[Callable[[str], None]] = []
        self._on_request = on_request
        self._measured = measured
        self._tasks: TaskGroup | None = None
        self._doubted: set[str] = set()
        self._unsettled: set[str] = set()
        self._is_doubted = Wakeup()

    @property
    def client_id(self) -> str:
        """How servers know this client. Raises ClientClosed before it is opened."""
        if not self._client_id:
            raise ClientClosed("this client has no id yet: it gets one when its block is entered")
        return self._client_id

    @property
    def tasks(self) -> TaskGroup:
        """The session's task group. Raises ClientClosed outside its block."""
        if self._tasks is None:
            raise ClientClosed("this client is not open: use it inside its `with` block")
        return self._tasks

    async def _start(self) -> None:
        self.host = local_host_towards(self.name_servers[0])
        self._client_id = make_client_id(self.host)
        await self.pool.__aenter__()
        try:
            self._tasks = await anyio.create_task_group().__aenter__()
        except BaseException:
            await self.pool.__aexit__(None, None, None)
            raise
        self._tasks.start_soon(self._refresh_routes)
        if self._measured is not None:
            self._measured.begin()

    async def _end(self, *, failed: bool) -> None:
        tasks, self._tasks = self._tasks, None
        try:
            if tasks is not None:
                tasks.cancel_scope.cancel()
                await tasks.__aexit__(None, None, None)
        finally:
            if self._measured is not None:
                self._measured.end()
            await self.pool.__aexit__(None, None, None)

    def stay_behind(self) -> None:
        """Give up this copy: it is in a fork of the process that opened it."""
        super().stay_behind()
        if self._measured is not None:
            self._measured.forget()

    async def route(self, topic: str, purpose: str) -> Route:
        """The topic's route, fetched if need be. `purpose` is "publish to" or "subscribe to".

        A topic that does not exist yet is given the queues of TBW102 to publish to: the first
        message creates it, where the brokers allow that. Raises NoRoute.
        """
        problems: dict[str, str] = {}
        route = self.routes.route(topic)
        if route is None or (purpose == "publish to" and not route.writable):
            route = await self._fetch(topic, topic, problems)
        if route is None and purpose == "publish to":
            route = await self._fetch(topic, DEFAULT_TOPIC, problems)
        if route is None:
            raise _no_route(topic, purpose, self.name_servers, problems)
        return route

    async def route_within(self, topic: str, purpose: str, timeout_s: float) -> Route:
        """The route, as by `route`, with a wait of `timeout_s` for servers that are about to start.

        That is while no name server answers, or those that do know no broker; and for a moment
        after that, in which the brokers register one after the other. Raises NoRoute.
        """
        deadline_s = steady_s() + timeout_s
        settled_s = steady_s()
        # The last reason that was given stands when the deadline cuts the next try off.
        error = NoRoute(topic, purpose, f"no name server answered within {timeout_s:.2f} s")
        while True:
            with anyio.move_on_after(max(0.0, deadline_s - steady_s())):
                try:
                    return await self.route(topic, purpose)
                except NoRoute as problem:
                    error = problem
                if await self._is_starting():
                    settled_s = steady_s() + limits.ROUTE_SETTLES_S
            if steady_s() + limits.ROUTE_RETRY_S >= min(deadline_s, settled_s):
                raise error
            await anyio.sleep(limits.ROUTE_RETRY_S)

    def settled(self, topic: str) -> bool:
        """Whether a name server has named all broker groups with this topic; one that has just
        begun may not know each yet."""
        return topic not in self._unsettled

    async def wait_settled(self, topic: str, timeout_s: float) -> None:
        """Wait until name servers have named all broker groups with this topic. Raises NoRoute
        after `timeout_s`."""
        deadline_s = steady_s() + timeout_s
        while not self.settled(topic):
            now_s = steady_s()
            if now_s >= deadline_s:
                reason = "the name servers have just begun, and may not know all its queues yet"
                raise NoRoute(topic, "choose a queue of", reason, "send again in a moment")
            await anyio.sleep(min(limits.ROUTE_PAUSE_S, deadline_s - now_s))
            with anyio.move_on_after(max(limits.ROUTE_RETRY_S, deadline_s - steady_s())):
                await self._fetch(topic, topic, {})
                route = self.routes.route(topic)
                if route is not None and route.promised and not self.settled(topic):
                    await self._fetch(topic, DEFAULT_TOPIC, {})

    async def _is_starting(self) -> bool:
        """Whether no name server answers, or none of them knows a broker yet."""
        for name_server in self.name_servers:
            with suppress(RemotingError, BadInput, Refused):
                if await self.finder.knows_brokers(name_server):
                    return False
        return True

    async def _fetch(self, topic: str, asked_topic: str, problems: dict[str, str]) -> Route | None:
        """Ask all name servers at once for `asked_topic`'s route; the first that has it wins. One
        that has just begun does only where no other has it.

        `problems` gets the errors of those without a proper answer, by address.
        """
        changed = False
        before = self.routes.route(topic)
        queues = () if before is None else before.writable
        known = sorted({queue.broker_name for queue in queues})
        async with together() as tasks:

            async def ask(name_server: str) -> None:
                nonlocal changed
                try:
                    data = await self.finder.topic_route(name_server, asked_topic, known)
                    if data is not None:
                        is_promise = asked_topic != topic
                        is_settled = self._note_settling(topic, data)
                        changed |= self.routes.update(topic, data, is_promise=is_promise)
                        if is_settled:
                            tasks.cancel_scope.cancel()
                except (RemotingError, BadInput, Refused) as error:
                    problems[name_server] = str(error)

            for name_server in self.name_servers:
                tasks.start_soon(ask, name_server)
        if changed:
            for listener in self.on_route_change:
                listener(topic)
        return self.routes.route(topic)

    def _note_settling(self, topic: str, data: TopicRouteData) -> bool:
        """Note whether a name server knows all groups of a topic, and return it. What was known
        before it began still counts."""
        if data.settles_in_ms is None or data.order_topic_conf:
            self._unsettled.discard(topic)
            return True
        if topic in self._unsettled or self.routes.route(topic) is None:
            self._unsettled.add(topic)
        return False

    def doubt(self, topic: str) -> None:
        """A broker declined what the topic's route allows: look at it again soon."""
        self._doubted.add(topic)
        self._is_doubted.set()

    async def _refresh_routes(self) -> None:
        refresh_s = steady_s()
        while True:
            await self._is_doubted.wait(max(0.0, refresh_s - steady_s()))
            topics, self._doubted = self._doubted, set()
            if steady_s() >= refresh_s:
                refresh_s = steady_s() + world().seldom_s(limits.ROUTE_REFRESH_S)
                topics.update(self.routes.topics())
            for topic in topics:
                await self._fetch(topic, topic, {})
            if topics:
                await anyio.sleep(limits.ROUTE_PAUSE_S)

    async def leave(self, header: UnregisterClientHeader) -> None:
        """Tell every broker that we are connected to that this client leaves a group."""
        async with together() as tasks:
            for broker_name in self.routes.broker_names():
                for address in self.routes.members(broker_name):
                    if self.pool.connected(address) is not None:
                        command = Command(RequestCode.UNREGISTER_CLIENT, encode_header(header))
                        tasks.start_soon(self._leave, address, command)

    async def _leave(self, address: str, command: Command) -> None:
        """A broker that can't be reached forgets this client when the connection ends."""
        with suppress(RemotingError):
            await self.pool.request(address, command, limits.HEARTBEAT_TIMEOUT_S)

    def _asked(self, address: str, command: Command) -> Command | None:
        answer = None if self._on_request is None else self._on_request(address, command)
        if answer is not None or command.is_oneway:
            return answer
        return command.reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f"this client does not serve request code {command.code}",
        )


def _no_route(
    topic: str, purpose: str, name_servers: tuple[str, ...], problems: dict[str, str]
) -> NoRoute:
    """The error: no name server knows the topic, or none could be asked."""
    if len(problems) == len(name_servers):
        reasons = "; ".join(problems.values())
        advice = "start one (mqnamesrv), or check the address: host:port;host:port"
        return NoRoute(topic, purpose, f"no name server answers ({reasons})", advice)
    known = ", ".join(name for name in name_servers if name not in problems)
    return NoRoute(topic, purpose, f"name server {known} does not know it")
