"""Finds the leader of a broker group, as soon as the group itself knows it.

All known servers are asked at once: each member for its own role (GROUP_INFO), each name server for
further members. A member that does not lead is asked again after 5 to 50 ms. Only a member that
says itself that it leads counts, and that name servers have named; of two, the one with the higher
term. What others say of the
leader, or a route, may be older than the failure that started the search.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from dledger.errors import BadInput, DledgerError, RemotingError
from dledger.observe import Logger, get_logger
from dledger.remoting.bodies import TopicRouteData
from dledger.remoting.codes import VERSION_ANY_DELAY, RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GetRouteinfoByTopicHeader,
    GroupInfoHeader,
    GroupInfoResponseHeader,
    decode_header,
    encode_header,
)
from dledger.world import steady_s
from mqclient import limits
from mqclient.connection.answers import cluster_in, route_in
from mqclient.connection.lifetime import together
from mqclient.connection.peers import PeerPool
from mqclient.connection.retry import Next, backoff_s, judge, may_pass
from mqclient.connection.routing import RouteTable
from mqclient.errors import NoLeader, Refused

log = get_logger(__name__)


def log_failure(logger: Logger, event: str, error: DledgerError, **values: object) -> None:
    """Warn of what is tried again; its finder has warned already of a group without a leader."""
    write = logger.debug if isinstance(error, NoLeader) else logger.warning
    write(event, **values, reason=str(error))


@dataclass(slots=True)
class LeaderFinder:
    """Searches leaders and notes them in `routes`."""

    pool: PeerPool
    routes: RouteTable
    name_servers: tuple[str, ...]
    _searches: defaultdict[str, anyio.Lock] = field(default_factory=lambda: defaultdict(anyio.Lock))
    _found: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    _absent_since_s: dict[str, float] = field(default_factory=dict)

    async def find(self, broker_name: str, topic: str | None = None) -> str:
        """The address of the present leader; waits until there is one.

        Callers at the same time share one search. `topic` is one whose route names the group.
        """
        before = self._found[broker_name]
        async with self._searches[broker_name]:
            leader = self.routes.leader(broker_name)
            if leader is not None and self._found[broker_name] != before:
                return leader
            while True:
                await self._search(broker_name, topic)
                found = self.routes.leader(broker_name)
                # Another caller may have dropped it already.
                if found is not None:
                    return found

    async def granted(
        self,
        what: str,
        broker_name: str,
        topic: str,
        command: Command,
        timeout_s: float,
        also: ResponseCode = ResponseCode.SUCCESS,
        held_s: float = 0.0,
    ) -> Command:
        """Like `ask`, but also raises Refused unless the answer's code is success or in `also`."""
        answer = await self.ask(broker_name, command, timeout_s, topic, held_s)
        if answer.code not in (ResponseCode.SUCCESS, also):
            raise Refused(what, "its leader", answer.code, answer.remark)
        return answer

    async def ask(
        self,
        broker_name: str,
        command: Command,
        timeout_s: float,
        topic: str | None = None,
        held_s: float = 0.0,
        unsure: list[str] | None = None,
    ) -> Command:
        """The leader's answer to a request that may safely be repeated, even if the leader changes.

        The answer has any code that another try would not change. New tries begin until `timeout_s`
        is over; the server may hold each for `held_s` (long polling). `unsure` gets why the outcome
        of a try is not known. What the last try came to is the caller's: raises NoLeader or
        another RemotingError if that one was not answered, though earlier ones may have been.
        """
        began_s = steady_s()
        deadline_s = began_s + timeout_s
        attempt = 0
        while True:
            attempt += 1
            server, outcome = await self._ask_once(broker_name, command, deadline_s, topic, held_s)
            if isinstance(outcome, Command) and not may_pass(outcome):
                return outcome
            verdict = judge(outcome, attempt=attempt, now_s=steady_s(), deadline_s=deadline_s)
            if unsure is not None and not verdict.definite:
                unsure.append(verdict.reason)
            if verdict.next is Next.REDIRECT:
                self.routes.redirect(broker_name, server, verdict.address)
            elif verdict.next is Next.FIND:
                self.routes.suspect(broker_name, server)
            elif verdict.next is Next.GIVE_UP:
                if isinstance(outcome, Command):
                    return outcome
                raise outcome
            await anyio.sleep(verdict.delay_s)

    async def _ask_once(
        self,
        broker_name: str,
        command: Command,
        deadline_s: float,
        topic: str | None,
        held_s: float,
    ) -> tuple[str, Command | RemotingError]:
        began_s = steady_s()
        leader = self.routes.leader(broker_name)
        if leader is None:
            with anyio.move_on_after(deadline_s - began_s):
                leader = await self.find(broker_name, topic)
        if leader is None:
            waited_s = steady_s() - began_s
            absent = NoLeader(broker_name, self.routes.members(broker_name), waited_s)
            if broker_name not in self._absent_since_s:
                self._absent_since_s[broker_name] = began_s
                log.warning("no leader", broker=broker_name, reason=str(absent))
            raise absent
        since_s = self._absent_since_s.pop(broker_name, None)
        if since_s is not None:
            log.info("leader again", broker=broker_name, leader=leader, after_s=began_s - since_s)
        try:
            left_s = max(0.001, deadline_s - steady_s()) + held_s
            return leader, await self.pool.request(leader, copy(command), left_s)
        except RemotingError as error:
            return leader, error

    async def _search(self, broker_name: str, topic: str | None) -> None:
        asked: set[str] = set()
        async with together() as tasks:

            def ask_new_members() -> None:
                for address in self.routes.members(broker_name):
                    if address not in asked:
                        asked.add(address)
                        tasks.start_soon(self._ask_member, broker_name, address, tasks)

            ask_new_members()
            if topic is not None:
                for name_server in self.name_servers:
                    tasks.start_soon(self._ask_name_server, name_server, topic)
            while not tasks.cancel_scope.cancel_called:
                await anyio.sleep(limits.FIND_BACKOFF_MAX_S)
                ask_new_members()

    async def _ask_member(self, broker_name: str, address: str, tasks: TaskGroup) -> None:
        """Ask one member until it, or another one, says that it leads."""
        attempt = 0
        while True:
            attempt += 1
            info = await self.group_info(address)
            if (
                info is not None
                and (info.role, info.broker_name) == ("leader", broker_name)
                and info.node_id not in info.learners
                and self.routes.learn_leader(broker_name, address, info.term)
            ) or (info is None and await self._learn_stock_master(broker_name, address)):
                self._found[broker_name] += 1
                tasks.cancel_scope.cancel()
                return
            await anyio.sleep(backoff_s(attempt))

    async def _learn_stock_master(self, broker_name: str, address: str) -> bool:
        """Note a broker of RocketMQ's as leader, if the last route calls it the master: it does
        not say itself whether it leads. Returns whether it was noted."""
        is_master = self.routes.master(broker_name) == address
        if not self.pool.met_stock or not is_master:
            return False
        version = await self.pool.stock_version(address, limits.FIND_REQUEST_TIMEOUT_S)
        return bool(version) and self.routes.learn_leader(broker_name, address, 0)

    async def learn_kinds(self, broker_names: Iterable[str]) -> None:
        """Note which groups' brokers are RocketMQ's, where a name server is; elsewhere none are.

        A group that can't be asked now counts as RocketMQ's: our brokers take its requests, too.
        """
        if not self.pool.met_stock:
            return
        for broker_name in broker_names:
            address = self.routes.master(broker_name)
            timeout_s = limits.FIND_REQUEST_TIMEOUT_S
            version = None
            if address is not None:
                version = await self.pool.stock_version(address, timeout_s)
            self.routes.learn_version(
                broker_name, VERSION_ANY_DELAY if version is None else version
            )

    async def group_info(self, address: str) -> GroupInfoResponseHeader | None:
        """A member's answer about its group, or None if it can't be reached."""
        command = Command(RequestCode.GROUP_INFO, encode_header(GroupInfoHeader()))
        try:
            answer = await self.pool.request(address, command, limits.FIND_REQUEST_TIMEOUT_S)
            if answer.code != ResponseCode.SUCCESS:
                return None
            return decode_header(GroupInfoResponseHeader, answer)
        except (RemotingError, BadInput):
            return None

    async def _ask_name_server(self, name_server: str, topic: str) -> None:
        """Add new members as the name server learns of them."""
        while True:
            with suppress(RemotingError, BadInput, Refused):
                data = await self.topic_route(name_server, topic)
                if data is not None:
                    self.routes.learn_members(data)
            await anyio.sleep(limits.FIND_BACKOFF_MAX_S)

    async def knows_brokers(self, name_server: str) -> bool:
        """Whether any broker is registered with one name server.

        Raises RemotingError, Refused or BadInput if it gives no proper answer.
        """
        command = Command(RequestCode.GET_BROKER_CLUSTER_INFO, {})
        answer = await self.pool.request(name_server, command, limits.FIND_REQUEST_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            what = "the list of brokers"
            raise Refused(what, f"name server {name_server}", answer.code, answer.remark)
        return bool(cluster_in(answer).broker_addr_table)

    async def topic_route(
        self, name_server: str, topic: str, known: Sequence[str] = ()
    ) -> TopicRouteData | None:
        """A topic's route as one name server has it; None if it has none. `known` are the broker
        groups that had the topic.

        Raises RemotingError, Refused or BadInput if it gives no proper answer.
        """
        header = GetRouteinfoByTopicHeader(topic, True, [*known] or None)
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, encode_header(header))
        answer = await self.pool.request(name_server, command, limits.FIND_REQUEST_TIMEOUT_S)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise Refused("a route", f"name server {name_server}", answer.code, answer.remark)
        return route_in(answer)
