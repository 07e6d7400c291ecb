"""The parts that the request handlers share: one replica's state, its log, and the leader's
parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from dledger.errors import ConfigError, Rot, StorageError
from dledger.metrics.history import History
from dledger.net import Faults, Peer
from dledger.net.auditing import Auditor
from dledger.net.proving import Prover
from dledger.net.quota import ConnectionQuota
from dledger.program.audit_log import AuditLog
from dledger.remoting.bodies import SubscriptionGroupConfig, TopicConfig, TopicConfigWrapper
from dledger.remoting.message import DEFAULT_TOPIC, host_bytes
from dledger.remoting.names import PERM_WRITE, TIMER_TOPIC
from dledger.remoting.record import MAGIC, RECORD_OVERHEAD_BYTES, Record
from dledger.remoting.record.layout import SIZE_AND_MAGIC
from dledger.trust.audit import Trail
from dledger.trust.guard import Guard, Mode
from dledger.trust.proof import NONCE_BYTES, Door
from dledger.trust.rolling import Secrets
from dledger.trust.signing import Signing
from mqbroker.config import BrokerConfig
from mqbroker.flow.control import Arriving, Flow
from mqbroker.flow.rates import Rates
from mqbroker.leader.announcements import Announcements
from mqbroker.leader.appending.append import Appender
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.assignments import Assignments
from mqbroker.leader.definitions import Definitions
from mqbroker.leader.lock_clock import LockClock
from mqbroker.leader.log import Log
from mqbroker.leader.role import Role
from mqbroker.leader.waiting.delays import DelayLevels
from mqbroker.refusal import busy, no_queue, system_error
from mqbroker.requests.door import AdminDoor
from mqbroker.requests.later import noted
from mqbroker.requests.looking import Looking
from mqbroker.requests.permissions import check_writable
from mqbroker.requests.replies import Replies
from mqbroker.state.groups.places import has_queue
from mqbroker.state.machine import Machine
from mqbroker.state.topics import system_topics

if TYPE_CHECKING:
    from dledger.tls.servers import ServerContexts


class Core:
    """Parts of a broker that answer requests together.

    While requests are served only one attribute ever changes: `config`, the present config. It is
    `file_config` with the group's settings, which are entries of the log, so all replicas have the
    same. Only `take_settings` replaces it, when such an entry was applied. A config itself never
    changes: code that keeps one keeps the settings of that time.

    `clock_ms` is the wall clock, `clock_s` a monotonic one. `quota` is that of the ports, whose
    counts tools are shown.
    """

    def __init__(
        self,
        config: BrokerConfig,
        machine: Machine,
        log: Log,
        clock_ms: Callable[[], int],
        clock_s: Callable[[], float],
        *,
        quota: ConnectionQuota | None = None,
        tls: ServerContexts | None = None,
        audit_log: AuditLog | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self.file_config = self.config = config
        self.machine, self.log = machine, log
        self.clock_ms, self.clock_s = clock_ms, clock_s
        self.tls = tls
        self.quota = quota or ConnectionQuota()
        self.secrets = secrets or config.secrets()
        self.store_host = host_bytes(config.broker_ip1, config.listen_port)
        #: The port that serves figures; "" if none does.
        self.metrics_address = ""
        self.history = History()
        self.faults = Faults()
        self.rates = Rates()
        self.role = Role(config.node_id, config.client_addresses())
        self.assignments = Assignments(machine, clock_ms, clock_s)
        note_fault = partial(self.faults.note, "answer failed")
        self.entries = Entries(log, self.assignments, note_fault, clock_s)
        self.lock_clock = LockClock(machine, clock_s)
        self.definitions = Definitions(
            machine, self.entries, self.role, self.assignments, self._auto_creates
        )
        self.appender = Appender(machine, self.entries)
        self.levels = DelayLevels.parse(config.message_delay_level)
        self.replies = Replies(self.role, clock_s)
        self.announcements = Announcements(clock_s)
        self.flow = Flow(self._group, self.rates, clock_s)
        look = Looking(config.broker_cluster_name, machine, self.find_record)
        trail = Trail(f"{config.broker_name}-{config.node_id}")
        self.auditor = Auditor(trail, audit_log or AuditLog(None), look, clock_ms, noted)
        nonce = os.urandom(NONCE_BYTES)
        self.guard = Guard(self.secrets, lambda: (machine.users,), look, clock_ms, nonce)
        self.door = AdminDoor(config, self.secrets, self.guard, self.auditor)
        self.take_settings()

    def _auto_creates(self) -> bool:
        return self.config.auto_create_topic_enable

    def _group(self, name: str) -> SubscriptionGroupConfig | None:
        return self.machine.groups.get(name)

    def take_settings(self) -> str | None:
        """Replace `config` according to the group's settings; returns the reason if one can't be
        used here."""
        try:
            self.config = self.file_config.with_settings(self.machine.settings)
        except ConfigError as error:
            return str(error)
        self.guard.mode = Mode(self.config.authorization_mode)
        return None

    @property
    def dialler(self) -> ServerContexts | None:
        """The dialler for other servers; None for plain text."""
        return None if self.tls is None else self.tls.dialler

    async def signing(
        self, peer: Peer, door: Door, server_id: str, timeout_s: float, of: str | None = None
    ) -> Signing | None:
        """Prove to another server that this node knows the cluster's secret, as a member of its own
        broker group or `of` another. What signs the requests that follow; None without a secret,
        here or there. Raises ConnectFailed if the two have different ones, RemotingError."""
        if not self.secrets:
            return None
        config = self.file_config
        own = config.broker_cluster_name, of or config.broker_name
        prover = Prover(self.secrets, *own, self.role.node_id)
        return await prover.prove(peer, door, server_id, timeout_s)

    @property
    def permission(self) -> int:
        """The permission of this broker group, by brokerPermission and by the name servers."""
        permission = self.config.broker_permission
        return permission & ~PERM_WRITE if self.announcements.wiped else permission

    def admit(self, *sends: Arriving) -> None:
        """Admit new messages of one entry to their topics, which are made if need be. Raises
        Refused."""
        permission = self.permission
        for each in sends:
            check_writable(each.topic, permission)
        self.flow.admit(*sends)
        for each in sends:
            self.definitions.ensure_topic(each.topic)

    def lacking_system_topics(self) -> list[TopicConfig]:
        """The topics that the broker or its config needs, and that do not exist."""
        config = self.config
        queues = config.default_topic_queue_nums if config.auto_create_topic_enable else None
        wanted = system_topics(
            config.broker_cluster_name, config.broker_name, len(self.levels), queues
        )
        return [topic for topic in wanted if self.machine.topics.get(topic.topic_name) is None]

    def detour(
        self, topic: str, queue_id: int, properties: dict[str, str]
    ) -> tuple[str, int, dict[str, str]]:
        """Where a message that may have to wait is stored first. Refused if too many wait."""
        now_ms = self.assignments.now_ms()
        place = self.levels.detour(topic, queue_id, properties, now_ms)
        full = self.machine.timers.owners.full((topic,)) if place[0] == TIMER_TOPIC else None
        if full is not None:
            raise busy(full)
        return place

    def topic_table(self, names: Collection[str] | None = None) -> TopicConfigWrapper:
        """All topics, or those of these names that there are, as sent to name servers and tools.

        Without auto-creation it has no TBW102.
        """
        topics = self.machine.topics
        wanted = topics if names is None else filter(None, map(topics.get, names))
        auto_create = self.config.auto_create_topic_enable
        table = {
            topic.topic_name: topic
            for topic in wanted
            if auto_create or topic.topic_name != DEFAULT_TOPIC
        }
        return TopicConfigWrapper(table, topics.version)

    def check_queue(self, topic: str, queue_id: int) -> None:
        """Refuse a topic that does not exist, or a queue that it neither has nor had."""
        queues = self.definitions.topic(topic).queues
        if not has_queue(self.machine, topic, queue_id):
            raise no_queue(topic, queue_id, queues)

    def asked_record(self, position: int) -> Record:
        """The message record at a position that a request names. Refused if none begins there."""
        record = self.find_record(position)
        if record is None:
            raise system_error(f"no message begins at position {position}")
        return record

    def find_record(self, position: int) -> Record | None:
        """The message record that begins at `position`; None if none does, or none any more.

        Raises Rot for a damaged one, about which neither can be said.
        """
        try:
            return self.record_at(position)
        except Rot:
            raise
        except StorageError:
            return None

    def record_at(self, position: int) -> Record:
        """The message record that begins at `position` of the log; StorageError if none does.

        Positions come from clients, so it is checked that a record begins there.
        """
        size, magic = SIZE_AND_MAGIC.unpack(self.log.view(position, SIZE_AND_MAGIC.size))
        if magic != MAGIC or size < RECORD_OVERHEAD_BYTES:
            raise StorageError(f"no message begins at position {position}")
        record = Record(self.log.view(position, size))
        if record.fault or record.physical_offset != position or not record.check():
            raise StorageError(f"no message begins at position {position}")
        return record
