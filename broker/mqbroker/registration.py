"""Registers this replica with the name servers: its address, whether it leads, its topics.

Each name server is served by a task of its own, so one that hangs does not keep the others waiting.
A replica registers over one lasting connection: when that ends, the name server takes the replica
for gone. It registers at the start, when the role or a topic changes, and every
`REGISTER_INTERVAL_S`. In between it sends heartbeats; a name server that does not know the replica,
or no longer, says so, and the replica registers again. Each answer says whether an operator has
taken the group's write permission there. `announcements` notes what each
has got.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import partial

import msgspec
import trio

from dledger.errors import DledgerError
from dledger.failpoints import failpoint
from dledger.limits import ANSWER_BODY_BYTES_MAX
from dledger.net import Peer, connect_peer
from dledger.observe import get_logger
from dledger.program.pulse import next_look
from dledger.remoting import headers
from dledger.remoting.bodies import RegisterBrokerBody, TopicConfigWrapper, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.remoting.names import PERM_INHERIT, PERM_READ_WRITE
from dledger.trust.signing import NAME_SERVER_ID, Signing, name_server_door
from dledger.trust.users import encoded
from dledger.world import world
from mqbroker import limits
from mqbroker.leader.announcements import Announcements
from mqbroker.requests.core import Core
from mqbroker.upkeep.keeping import keep_running

_log = get_logger(__name__)


class _NameServer:
    """A connection to a name server; requests are signed if both have a secret."""

    def __init__(self, peer: Peer, signing: Signing | None) -> None:
        self.address = peer.address
        #: The version of the topics that it was sent last; None if it is to get all of them.
        self.sent_counter: int | None = None
        #: The version of this group's users that it was sent last.
        self.sent_users = -1
        self.is_proven = signing is not None
        self._peer = peer
        self._signing = signing

    async def request(self, code: int, header: headers.Header, body: bytes = b"") -> Command:
        """Send a request; returns the answer, whatever its code. Raises RemotingError."""
        command = Command(code, encode_header(header), body)
        if self._signing is not None:
            command = self._signing.sign(command)
        return await self._peer.request(command, limits.REGISTER_TIMEOUT_S)


class Registration:
    """Keeps all name servers informed until it is cancelled."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._changed = trio.Event()
        self._stop_wanted = trio.Event()
        #: When all name servers that are connected know that this replica stops.
        self.stopped = trio.Event()
        self.address = core.role.addresses[core.role.node_id]
        core.announcements.watch(self._wake)

    async def run(self) -> None:
        """Serve every name server of the config."""
        name_servers = self._core.config.name_servers()
        if not name_servers:
            _log.warning("no name server", remedy="set namesrvAddr: clients find brokers by it")
        async with trio.open_nursery() as nursery:
            for host, port in name_servers:
                name, serve = f"registration at {host}:{port}", partial(self._serve, host, port)
                nursery.start_soon(keep_running, name, serve, self._core.faults)
        self.stopped.set()

    def stop(self) -> None:
        """Unregister from every name server; `run` then ends."""
        self._stop_wanted.set()
        self._wake()

    def _wake(self, _: Command | None = None) -> None:
        """Register or send a heartbeat at once: something has changed here, or a name server has
        news of this group."""
        self._changed.set()
        self._changed = trio.Event()

    async def _serve(self, host: str, port: int) -> None:
        pause_s, reason = limits.RECONNECT_S_MIN, ""
        while not self._stop_wanted.is_set():
            try:
                timeout_s, tls = limits.REGISTER_TIMEOUT_S, self._core.dialler
                async with connect_peer(host, port, timeout_s, self._wake, tls) as peer:
                    signing = await self._prove(peer)
                    pause_s, reason = limits.RECONNECT_S_MIN, ""
                    await self._keep_registered(_NameServer(peer, signing))
            except (DledgerError, OSError) as error:
                if str(error) != reason:  # once, not at every try
                    reason = str(error)
                    _log.warning(
                        "name server not reached",
                        namesrv=f"{host}:{port}",
                        reason=reason,
                        remedy="start it (mqnamesrv) or mend namesrvAddr; it is tried again",
                    )
                with trio.move_on_after(pause_s):
                    await self._changed.wait()
                pause_s = min(2 * pause_s, limits.RECONNECT_S_MAX)

    async def _prove(self, peer: Peer) -> Signing | None:
        """The signer of requests to a name server; None without a secret, here or there."""
        door = name_server_door(*self._core.config.names)
        return await self._core.signing(peer, door, NAME_SERVER_ID, limits.REGISTER_TIMEOUT_S)

    async def _keep_registered(self, peer: _NameServer) -> None:
        announcements = self._core.announcements
        announcements.connected(peer.address)
        try:
            await self._tell(peer, announcements)
        finally:
            announcements.gone(peer.address)
        core = self._core
        header = headers.UnregisterBrokerHeader(
            broker_name=core.config.broker_name,
            broker_addr=self.address,
            cluster_name=core.config.broker_cluster_name,
            broker_id=core.role.broker_id,
        )
        await peer.request(RequestCode.UNREGISTER_BROKER, header)

    async def _tell(self, peer: _NameServer, announcements: Announcements) -> None:
        """Register and send heartbeats until the broker stops."""
        interval_s = self._core.config.register_broker_heartbeat_millis / 1000
        sent_all_s, sent_version = -math.inf, announcements.version
        while not self._stop_wanted.is_set():
            now_s, version, changed = self._core.clock_s(), announcements.version, self._changed
            due = now_s - sent_all_s >= world().seldom_s(limits.REGISTER_INTERVAL_S)
            if version != sent_version or due:
                if due:  # by its own clock: changes must not put it off for ever
                    peer.sent_counter, sent_all_s = None, now_s
                rest_s = limits.REGISTER_REST * await self._register(peer)
                await self._tell_users(peer)
                announcements.confirmed(peer.address, version)
                sent_version = version
                with trio.move_on_after(rest_s):
                    await self._stop_wanted.wait()
            elif not await self._heartbeat(peer):
                sent_all_s = -math.inf
                continue
            with trio.move_on_at(next_look(interval_s)):
                await changed.wait()

    async def _tell_users(self, peer: _NameServer) -> None:
        """Send a name server this group's users, if it can trust them."""
        users = self._core.machine.users
        if peer.sent_users == users.version or not (peer.is_proven and self._core.role.serving):
            return
        peer.sent_users = users.version
        body = encoded(users)
        if len(body) > ANSWER_BODY_BYTES_MAX:
            reason = f"they take {len(body)} bytes; at most {ANSWER_BODY_BYTES_MAX} can be told"
            _log.error("users not told", namesrv=peer.address, reason=reason)
            return
        header = headers.RegisterUsersHeader(*self._core.config.names)
        answer = await peer.request(RequestCode.REGISTER_USERS, header, body)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
            peer.sent_users = -1
            _log.warning("users not told", namesrv=peer.address, reason=answer.remark)

    async def _register(self, peer: _NameServer) -> float:
        """Register; returns how many seconds it took to encode everything.

        A name server of ours gets changed topics alone, and all of them at times, or if it refuses
        that.
        """
        core, role = self._core, self._core.role
        began_s = core.clock_s()
        topics, since = self._topics_for(peer)
        peer.sent_counter = None
        body = encode_body(RegisterBrokerBody(topics))
        took_s = core.clock_s() - began_s
        header = headers.RegisterBrokerHeader(
            broker_name=core.config.broker_name,
            broker_addr=self.address,
            cluster_name=core.config.broker_cluster_name,
            ha_server_addr=self.address,
            broker_id=role.broker_id,
            heartbeat_timeout_millis=self._heartbeat_timeout_ms,
            term=role.term,
            node_id=role.node_id,
            since=since,
            permission=core.config.broker_permission,
        )
        failpoint("register.send")
        response = await peer.request(RequestCode.REGISTER_BROKER, header, body)
        failpoint("register.known")
        if response.code == ResponseCode.SUCCESS:
            answer = decode_header(headers.RegisterBrokerResponseHeader, response)
            if answer.takes_changes:
                peer.sent_counter = topics.data_version.counter
            core.announcements.heard(peer.address, wiped=bool(answer.wiped))
            _log.info(
                "registered", namesrv=peer.address, broker_id=header.broker_id, term=header.term
            )
        elif since is not None:
            return took_s + await self._register(peer)
        else:
            _log.warning(
                "registration refused",
                namesrv=peer.address,
                broker_id=header.broker_id,
                term=header.term,
                reason=response.remark,
            )
        return took_s

    def _topics_for(self, peer: _NameServer) -> tuple[TopicConfigWrapper, int | None]:
        """The topics to tell, and the version since which they have changed; None for all."""
        core = self._core
        news = core.announcements.news_for(peer.address)
        if news is not None and peer.sent_counter is not None:
            changed = self._table(news)
            # The others were deleted, or are not shown; a list of none would stand for all.
            if len(changed.topic_config_table) == len(news) > 0:
                return changed, peer.sent_counter
        return self._table(), None

    def _table(self, names: Collection[str] | None = None) -> TopicConfigWrapper:
        """Topics as routes shall have them: with no permission that the broker group has not."""
        table, permission = self._core.topic_table(names), self._core.config.broker_permission
        if permission == PERM_READ_WRITE:
            return table
        masked = {
            name: msgspec.structs.replace(topic, perm=topic.perm & (permission | PERM_INHERIT))
            for name, topic in table.topic_config_table.items()
        }
        return TopicConfigWrapper(masked, table.data_version)

    async def _heartbeat(self, peer: _NameServer) -> bool:
        """Whether the name server still knows this replica."""
        core = self._core
        header = headers.BrokerHeartbeatHeader(
            cluster_name=core.config.broker_cluster_name,
            broker_addr=self.address,
            broker_name=core.config.broker_name,
            broker_id=core.role.broker_id,
            epoch=core.role.term,
            max_offset=core.log.status.end_position,
            heartbeat_timeout_mills=self._heartbeat_timeout_ms,
        )
        response = await peer.request(RequestCode.BROKER_HEARTBEAT, header)
        if response.code != ResponseCode.SUCCESS:
            return False
        answer = decode_header(headers.BrokerHeartbeatResponseHeader, response)
        core.announcements.heard(peer.address, wiped=bool(answer.wiped))
        return True

    @property
    def _heartbeat_timeout_ms(self) -> int:
        interval_ms = self._core.config.register_broker_heartbeat_millis
        return int(world().seldom_s(limits.HEARTBEAT_TIMEOUT_INTERVALS * interval_ms))
