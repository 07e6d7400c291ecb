"""Users as the leaders of broker groups tell them, and which requests they may make here.

Users are entries of each broker group's log. A leader that has proven the cluster's secret tells a
name server all of its group's users when it registers and when they have changed, passwords wrapped
as in the log. Each group's word counts for itself: a user may do here what one of them allows. What
was told is kept while a group's brokers are away, and not over a restart: until a leader registers,
only the cluster's secret lets anybody in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dledger.errors import BadInput, ConfigError
from dledger.net import Connection
from dledger.net.auditing import Auditor
from dledger.net.serving import Right, Served, serves
from dledger.net.turns import encoding
from dledger.observe import get_logger
from dledger.program.audit_log import AuditLog
from dledger.program.audit_pages import answer_of
from dledger.program.settings import names_of
from dledger.remoting import headers
from dledger.remoting.bodies import TopicList
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.trust.accepting import NotLetIn
from dledger.trust.audit import Trail
from dledger.trust.guard import Asker, Guard, Mode
from dledger.trust.rights import (
    BY_SECRET,
    BY_SUPER,
    OPEN,
    SIGNED,
    UPDATE,
    Rights,
    cluster,
    fields,
)
from dledger.trust.signatures import ACCESS_KEY, CLUSTER_USER, body_hash
from dledger.trust.users import Users, decoded, unwrapped
from mqnamesrv import limits
from mqnamesrv.config import RUNTIME_KEYS, NamesrvConfig
from mqnamesrv.door import Door, Trust
from mqnamesrv.routing.routes import RouteTable
from mqnamesrv.routing.topics import Steps

_log = get_logger("namesrv")

CHANGE = cluster(UPDATE).naming(fields("topic", "brokerName", "namespace", "key"))
"""The rights of tools' changes."""
SETTINGS = cluster(UPDATE).naming(names_of(RUNTIME_KEYS))

UNIT_LISTS: Mapping[int, Callable[[bool, bool], bool]] = {
    RequestCode.GET_UNIT_TOPIC_LIST: lambda unit, subscribed: unit,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda unit, subscribed: subscribed,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: lambda unit, subscribed: (
        subscribed and not unit
    ),
}


class UserDoor:
    """The users of all broker groups, and the judge of requests. `trust` says how far a broker's
    request is trusted."""

    def __init__(
        self,
        door: Door,
        routes: RouteTable,
        clock_ms: Callable[[], int],
        trust: Callable[[Command, Connection], Trust],
        config: NamesrvConfig,
    ) -> None:
        self._door = door
        self._routes = routes
        self._trust = trust
        self._users: dict[str, Users] = {}
        self.guard: Guard = door.guard(self._users.values, self, clock_ms)
        self.guard.mode = Mode(config.authorization_mode)
        folder = Path(config.audit_log_dir) if config.audit_log_dir else None
        trail = Trail(f"namesrv-{config.listen_port}")
        self.auditor = Auditor(trail, AuditLog(folder), self, clock_ms)

    # -- what rights depend on (Look) -------------------------------------------------------

    @property
    def cluster(self) -> str:
        """The cluster, if there is only one here; else a right on all of them is wanted."""
        clusters = self._routes.clusters()
        return next(iter(clusters)) if len(clusters) == 1 else ""

    def has_topic(self, topic: str) -> bool:
        """Whether a broker has a topic."""
        return self._routes.topics.serves(topic)

    def has_group(self, _: str) -> bool:
        """Name servers know no consumer groups."""
        return False

    def topic_at(self, _: int) -> None:
        """No topic: name servers have no messages."""

    # -- requests ---------------------------------------------------------------------------

    @serves(RequestCode.SIGN_ON, needs=Right.ANYONE, rights=OPEN)
    def sign_on(self, request: Command, connection: Connection) -> Command:
        """The nonce that stamps on this connection must have."""
        answer = headers.SignOnResponseHeader(self.guard.nonce(connection.id), body_hash())
        return request.reply(ext=encode_header(answer))

    @serves(RequestCode.REGISTER_USERS, needs=Right.BROKER, rights=BY_SECRET)
    def register_users(self, request: Command, connection: Connection) -> Command:
        """Take over the users of a broker group from its leader."""
        if self._trust(request, connection) is not Trust.PROVEN:
            raise NotLetIn("users are taken only from brokers that prove the cluster's secret")
        header = decode_header(headers.RegisterUsersHeader, request)
        users = Users()
        users.restore(decoded(request.payload))
        if header.broker_name not in self._users and len(self._users) >= limits.BROKER_GROUPS_MAX:
            raise BadInput(f"users of {len(self._users)} broker groups are known, the bound")
        self._users[header.broker_name] = users
        _log.info("users told", broker_name=header.broker_name, users=len(users))
        return request.reply()

    @serves(RequestCode.LIST_AUDITED, needs=Right.ADMIN, rights=BY_SUPER)
    def list_audited(self, request: Command, _: Connection) -> Steps[Command]:
        """A page of this name server's audit log."""
        return answer_of(request, self.auditor.log)

    def unreadable(self, present: tuple[bytes, ...], wanted: tuple[bytes, ...]) -> Iterator[str]:
        """Users whose passwords the present secrets read, and the wanted ones would not."""
        for users in self._users.values():
            for user in users:
                if unwrapped(user, wanted) is None and unwrapped(user, present) is not None:
                    yield user.name

    def admit(self, request: Command, connection: Connection, served: Served[Right]) -> None:
        """Judge a request by who asks, and from where. Raises NotLetIn. What only brokers ask is
        judged where it is answered."""
        guard, source = self.guard, connection.peer[0]
        by_address = served.right is Right.ADMIN
        if guard.mode is Mode.OFF or served.rights.by_secret:
            guard.asker = Asker("", source)
            if by_address and not self._is_of_cluster(request, connection):
                self._door.check_admin(request, source)
            return
        asker = guard.identified(request, connection.id, source)
        reason = guard.refusal(asker, request, served.rights)
        if asker.wrong and guard.is_flood(connection.id):
            connection.close(f"too many wrong signatures: {asker.problem}")
        if reason is not None and guard.mode is Mode.ENFORCE:
            if asker.problem:
                connection.rest(guard.rest_s(source))
            raise NotLetIn(reason)
        if reason is not None:
            _log.info("would be refused", code=request.code, user=asker.name, reason=reason)
        if by_address and guard.mode is Mode.OBSERVE and not asker.may_all:
            self._door.check_admin(request, source)

    def refused(
        self, request: Command, connection: Connection, reason: str, rights: Rights
    ) -> None:
        """A request is not let in: log it, for operators and for audits."""
        _log.warning("not let in", code=request.code, reason=reason, peer=connection.peer)
        asker = self.guard.asker
        self.auditor.refused(request, (asker.name, connection.peer[0]), reason, rights)

    def who(self, request: Command, connection: Connection) -> tuple[str, str]:
        """The user that asks for what is served now ("" if unknown), and its address."""
        asker, source = self.guard.asker, connection.peer[0]
        if asker.name and not asker.problem:
            return asker.name, source
        return CLUSTER_USER if self._is_of_cluster(request, connection) else "", source

    def _is_of_cluster(self, request: Command, connection: Connection) -> bool:
        """Whether somebody with the cluster's secret has signed a request."""
        if request.ext.get(ACCESS_KEY) != CLUSTER_USER:
            return False
        return not self.guard.identified(request, connection.id, connection.peer[0]).problem

    def change_mode(self, mode: str) -> None:
        """Take over the setting `authorizationMode`. Raises ConfigError for rights that are to be
        enforced while nobody could take that back."""
        wanted = Mode(mode)
        is_new = wanted is Mode.ENFORCE and self.guard.mode is not Mode.ENFORCE
        if is_new and not any(users.has_super for users in self._users.values()):
            raise ConfigError(
                "rights can't be enforced while no broker group has told of an enabled super user: "
                "mqadmin createUser -u NAME -t Super"
            )
        self.guard.mode = wanted


class Lists:
    """The requests that ask for topics: what who asks may see, in short steps, since there may be
    very many. The first step reads who asks."""

    def __init__(self, routes: RouteTable, guard: Guard) -> None:
        self._routes = routes
        self._guard = guard

    @serves(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, needs=Right.ANYONE, rights=SIGNED)
    def all_topics(self, request: Command, _: Connection) -> Steps[Command]:
        """Names of all topics that the asker may see."""
        return self._listed(request, self._routes.topics.names())

    @serves(RequestCode.GET_TOPICS_BY_CLUSTER, needs=Right.ANYONE, rights=SIGNED)
    def topics_by_cluster(self, request: Command, _: Connection) -> Steps[Command]:
        """Topics of a cluster's groups."""
        cluster = decode_header(headers.GetTopicsByClusterHeader, request).cluster
        return self._listed(request, self._routes.topics_of_cluster(cluster))

    @serves(
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        needs=Right.ANYONE,
        rights=SIGNED,
    )
    def unit_topics(self, request: Command, _: Connection) -> Steps[Command]:
        """Topics whose flags say so."""
        return self._listed(request, self._routes.topics.of_units(UNIT_LISTS[request.code]))

    @serves(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, needs=Right.ANYONE, rights=SIGNED)
    def system_topics(self, request: Command, _: Connection) -> Steps[Command]:
        """Cluster and broker names, and a broker that knows its own system topics."""
        info = yield from self._routes.cluster_info()
        addresses = (
            address
            for broker in info.broker_addr_table.values()
            for address in broker.broker_addrs.values()
        )
        names = [*info.cluster_addr_table, *info.broker_addr_table]
        return (yield from _answered(request, names, broker_addr=next(addresses, None)))

    def _listed(self, request: Command, names: Steps[list[str]]) -> Steps[Command]:
        sight = self._guard.sight()
        seen = yield from sight.topics(dict.fromkeys((yield from names)))
        return (yield from _answered(request, [*seen]))


def _answered(request: Command, names: list[str], broker_addr: str | None = None) -> Steps[Command]:
    body = TopicList(topic_list=names, broker_addr=broker_addr)
    return request.reply(body=(yield from encoding(body)))
