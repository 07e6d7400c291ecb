"""Sends the administration's requests: to any name server, to one address, or to a group's leader.

Every request here may be repeated safely. So after a lost connection, or a refusal by a member that
does not lead, it is tried again until the deadline.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

import msgspec

from dledger.addresses import parse_addresses
from dledger.errors import BadInput, ConnectFailed, RemotingError
from dledger.observe import get_logger
from dledger.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigWrapper,
    TopicRouteData,
    decode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, Language
from dledger.remoting.headers import (
    GetSubscriptiongroupConfigHeader,
    GetTopicConfigHeader,
    Header,
    code_of,
    encode_header,
)
from dledger.tls.options import AskedTls
from dledger.trust.rolling import Secrets
from mqclient.connection.answers import cluster_in
from mqclient.connection.credentials import Credentials
from mqclient.connection.leaders import LeaderFinder
from mqclient.connection.lifetime import Living
from mqclient.connection.peers import PeerPool
from mqclient.connection.proven import asked_with_proof
from mqclient.connection.routing import RouteTable
from mqclient.errors import PartlyDone, Refused

log = get_logger(__name__)

Request: TypeAlias = Header | RequestCode
"""A request: a header, which is named after its code, or the code of a request without one."""


class AdminRequests(Living):
    """Connections of one administration session. Use it as an async context manager."""

    def __init__(
        self,
        namesrv_addr: str,
        timeout_s: float,
        secret: bytes | Secrets = b"",
        credentials: Credentials | None = None,
        tls: AskedTls = None,
    ) -> None:
        self.name_servers = parse_addresses(namesrv_addr)
        self._secrets = Secrets.of(secret)
        self._timeout_s = timeout_s
        self._pool = PeerPool(credentials=credentials, tls=tls)
        self._routes = RouteTable()
        self._leaders = LeaderFinder(self._pool, self._routes, self.name_servers)

    @property
    def leaders(self) -> LeaderFinder:
        """Finds leaders, over the same connections."""
        return self._leaders

    async def _start(self) -> None:
        await self._pool.__aenter__()

    async def _end(self, *, failed: bool) -> None:
        await self._pool.__aexit__(None, None, None)

    async def ask(self, address: str, request: Request, body: bytes = b"") -> Command:
        """The answer of one server, with any code. Raises RemotingError if there is none."""
        self.check_open()
        command = _command(request, body)
        answer = await self._pool.request(address, command, self._timeout_s)
        return await self._with_proof(address, command, answer)

    async def _with_proof(self, address: str, command: Command, answer: Command) -> Command:
        """The answer; if it refuses for want of permission, that to the request with a proof."""
        if answer.code != ResponseCode.NO_PERMISSION or not self._secrets:
            return answer
        proven = await asked_with_proof(
            address, command, self._secrets, self._timeout_s, self._pool.dialler
        )
        return answer if proven is None else proven

    async def ask_name_server(self, request: Request) -> Command:
        """The answer of the first name server that gives one."""
        problems = []
        for address in self.name_servers:
            try:
                return await self.ask(address, request)
            except RemotingError as error:
                problems.append(f"{address} ({error})")
        raise ConnectFailed(
            f"no name server answers: {', '.join(problems)}; "
            "start one (mqnamesrv) or name another one (-n host:port)"
        )

    async def ask_every_name_server(
        self, request: Request, body: bytes = b""
    ) -> dict[str, Command]:
        """The answers of all name servers, by address.

        Name servers share no state, so each is asked. Then raises Refused or RemotingError if all
        failed, PartlyDone if some did.
        """
        answers: dict[str, Command] = {}
        failures: dict[str, Exception] = {}
        for address in self.name_servers:
            try:
                answer = await self.ask(address, request, body)
                answers[address] = expect_success(answer, request, address)
                if answer.remark and answer.language is Language.PYTHON:
                    log.warning(answer.remark, namesrv=address)
            except (RemotingError, Refused) as error:
                failures[address] = error
        raise_unless_all(failures, answers)
        return answers

    async def ask_leader(self, broker: BrokerData, request: Request, body: bytes = b"") -> Command:
        """The successful answer of a group's leader. Raises Refused if it refuses; NoLeader as
        below."""
        answer = await self.ask_whoever_leads(broker, request, body)
        return expect_success(answer, request, self.leader(broker))

    async def ask_whoever_leads(
        self, broker: BrokerData, request: Request, body: bytes = b""
    ) -> Command:
        """The leader's answer, with any code. Raises NoLeader if none leads before the deadline."""
        self.check_open()
        self._routes.learn_members(TopicRouteData(broker_datas=[broker]))
        command = _command(request, body)
        answer = await self._leaders.ask(broker.broker_name, command, self._timeout_s)
        return await self._with_proof(self.leader(broker), command, answer)

    def leader(self, broker: BrokerData) -> str:
        """The address that answered last for a group, or "" if none has."""
        return self._routes.leader(broker.broker_name) or ""

    async def cluster_info(self) -> ClusterInfo:
        """Every broker group that the name server knows."""
        answer = await self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return cluster_in(answer)

    # RocketMQ's brokers before 5.0 have no request for a single config: the table is asked then.

    async def topic_configs(self, broker: BrokerData) -> Mapping[str, TopicConfig]:
        """All topics of a broker group, by name."""
        answer = await self.ask_leader(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
        return decode_body(TopicConfigWrapper, answer.payload).topic_config_table

    async def group_configs(self, broker: BrokerData) -> Mapping[str, SubscriptionGroupConfig]:
        """All consumer groups of a broker group, by name."""
        answer = await self.ask_leader(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return decode_body(SubscriptionGroupWrapper, answer.payload).subscription_group_table

    async def topic_config(self, broker: BrokerData, topic: str) -> TopicConfig | None:
        """A topic's config; None if it is not there."""
        header = GetTopicConfigHeader(topic=topic)
        answer = await self.ask_whoever_leads(broker, header)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return (await self.topic_configs(broker)).get(topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        expect_success(answer, f"the config of {topic!r}", self.leader(broker))
        return decode_body(TopicConfig, answer.payload)

    async def group_config(self, broker: BrokerData, group: str) -> SubscriptionGroupConfig | None:
        """A consumer group's config; None if it is not there."""
        header = GetSubscriptiongroupConfigHeader(group=group)
        answer = await self.ask_whoever_leads(broker, header)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return (await self.group_configs(broker)).get(group)
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return None
        expect_success(answer, f"the config of {group!r}", self.leader(broker))
        return decode_body(SubscriptionGroupConfig, answer.payload)


def _command(request: Request, body: bytes) -> Command:
    """A request, whose values are an application's. Raises BadInput for one of the wrong kind,
    which servers would refuse, or read otherwise."""
    if isinstance(request, RequestCode):
        return Command(request, {}, body)
    for field in msgspec.structs.fields(request):
        value = getattr(request, field.name)
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            raise BadInput(f"{_code(request).name}: {field.name}={value!r}: {error}") from error
    return Command(_code(request), encode_header(request), body)


def _code(request: Request) -> RequestCode:
    return request if isinstance(request, RequestCode) else code_of(type(request))


def expect_success(answer: Command, what: str | Request, address: str) -> Command:
    """The answer to what was asked, if it is a success; else raises Refused with its remark."""
    if answer.code != ResponseCode.SUCCESS:
        name = what if isinstance(what, str) else _code(what).name
        raise Refused(name, address, answer.code, answer.remark)
    return answer


def raise_unless_all(errors: Mapping[str, Exception], done: Collection[str]) -> None:
    """Raise what says where a change was made and where not, if there are errors."""
    if not errors:
        return
    if not done:
        raise next(iter(errors.values()))
    listed = "; ".join(f"not on {name}: {error}" for name, error in sorted(errors.items()))
    raise PartlyDone(f"done on {', '.join(sorted(done))}, but {listed}")
