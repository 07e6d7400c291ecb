"""The administration, blocking, part by part."""

from __future__ import annotations

from mqclient import admin as admins
from mqclient.admin import (
    brokers,
    clients,
    dead_letters,
    groups,
    members,
    messages,
    raft,
    replicas,
    settings,
    statistics,
    topics,
)
from mqclient.admin.access import audit, rights, users
from mqclient.admin.doctor import gathering
from mqclient.blocking.face import Face, Part, T, blocking, taking_what


class AdminPart(Part[T]):
    """A part of the administration."""


class Topics(AdminPart[topics.Topics]):
    """`mqclient.Admin.topics`, blocking."""

    update = blocking(topics.Topics.update)
    delete = blocking(topics.Topics.delete)
    list = blocking(topics.Topics.list)
    route = blocking(topics.Topics.route)
    clusters = blocking(topics.Topics.clusters)
    status = blocking(topics.Topics.status)


class Groups(AdminPart[groups.Groups]):
    """`mqclient.Admin.groups`, blocking."""

    progress = blocking(groups.Groups.progress)
    list = blocking(groups.Groups.list)
    update = blocking(groups.Groups.update)
    config = blocking(groups.Groups.config)
    delete = blocking(groups.Groups.delete)
    of_topic = blocking(groups.Groups.of_topic)
    reset_offset = blocking(groups.Groups.reset_offset)
    set_request_mode = blocking(groups.Groups.set_request_mode)


class Clients(AdminPart[clients.Clients]):
    """`mqclient.Admin.clients`, blocking."""

    consumers = blocking(clients.Clients.consumers)
    producers = blocking(clients.Clients.producers)
    status = blocking(clients.Clients.status)


class Brokers(AdminPart[brokers.Brokers]):
    """`mqclient.Admin.brokers`, blocking."""

    list = blocking(brokers.Brokers.list)
    status = blocking(brokers.Brokers.status)
    clean = blocking(brokers.Brokers.clean)


class Raft(AdminPart[raft.Raft]):
    """`mqclient.Admin.raft`, blocking."""

    status = blocking(raft.Raft.status)
    transfer_leader = blocking(raft.Raft.transfer_leader)


class Members(AdminPart[members.Members]):
    """`mqclient.Admin.members`, blocking."""

    add = blocking(members.Members.add)
    remove = blocking(members.Members.remove)


class Replicas(AdminPart[replicas.Replicas]):
    """`mqclient.Admin.replicas`, blocking."""

    export = blocking(replicas.Replicas.export)


class Settings(AdminPart[settings.Settings]):
    """`mqclient.Admin.settings`, blocking."""

    broker_config = blocking(settings.Settings.broker_config)
    update_broker_config = blocking(settings.Settings.update_broker_config)
    namesrv_config = blocking(settings.Settings.namesrv_config)
    update_namesrv_config = blocking(settings.Settings.update_namesrv_config)
    kv_config = blocking(settings.Settings.kv_config)
    has_kv_config = blocking(settings.Settings.has_kv_config)
    update_kv_config = blocking(settings.Settings.update_kv_config)
    delete_kv_config = blocking(settings.Settings.delete_kv_config)
    set_write_perm = blocking(settings.Settings.set_write_perm)


class Statistics(AdminPart[statistics.Statistics]):
    """`mqclient.Admin.statistics`, blocking."""

    traffic = blocking(statistics.Statistics.traffic)
    rates = blocking(statistics.Statistics.rates)
    history = blocking(statistics.Statistics.history)


class Messages(AdminPart[messages.Messages]):
    """`mqclient.Admin.messages`, blocking."""

    read = blocking(messages.Messages.read)
    offset_at = blocking(messages.Messages.offset_at)
    by_id = blocking(messages.Messages.by_id)
    by_key = blocking(messages.Messages.by_key)
    by_unique_key = blocking(messages.Messages.by_unique_key)
    scheduled = blocking(messages.Messages.scheduled)


class DeadLetters(AdminPart[dead_letters.DeadLetters]):
    """`mqclient.Admin.dead_letters`, blocking."""

    list = blocking(dead_letters.DeadLetters.list)
    redrive = blocking(dead_letters.DeadLetters.redrive)


class Doctor(AdminPart[gathering.Doctor]):
    """`mqclient.Admin.doctor`, blocking."""

    findings = blocking(gathering.Doctor.findings)
    facts = blocking(gathering.Doctor.facts)


class Users(AdminPart[users.Users]):
    """`mqclient.Admin.users`, blocking."""

    create = blocking(users.Users.create)
    update = blocking(users.Users.update)
    delete = blocking(users.Users.delete)
    get = blocking(users.Users.get)
    list = blocking(users.Users.list)


class Rights(AdminPart[rights.Rights]):
    """`mqclient.Admin.rights`, blocking."""

    grant = blocking(rights.Rights.grant)
    revoke = blocking(rights.Rights.revoke)
    list = blocking(rights.Rights.list)
    of_user = blocking(rights.Rights.of_user)
    explain = blocking(rights.Rights.explain)
    suggest = blocking(rights.Rights.suggest)
    strangers = blocking(rights.Rights.strangers)


class Audit(AdminPart[audit.Audit]):
    """`mqclient.Admin.audit`, blocking."""

    lines = blocking(audit.Audit.lines)


class Admin(Face[admins.Admin]):
    """`mqclient.Admin`, blocking."""

    @taking_what(admins.Admin)
    def __init__(self, admin: admins.Admin) -> None:
        super().__init__(admin)
        self.topics = Topics(self, admin.topics)
        self.groups = Groups(self, admin.groups)
        self.clients = Clients(self, admin.clients)
        self.brokers = Brokers(self, admin.brokers)
        self.raft = Raft(self, admin.raft)
        self.members = Members(self, admin.members)
        self.replicas = Replicas(self, admin.replicas)
        self.settings = Settings(self, admin.settings)
        self.statistics = Statistics(self, admin.statistics)
        self.messages = Messages(self, admin.messages)
        self.dead_letters = DeadLetters(self, admin.dead_letters)
        self.doctor = Doctor(self, admin.doctor)
        self.users = Users(self, admin.users)
        self.rights = Rights(self, admin.rights)
        self.audit = Audit(self, admin.audit)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Results that calls have left out so far: a sentence for each broker group that is
        away."""
        return self._client.left_out

    @property
    def unasked(self) -> tuple[str, ...]:
        """Names of the broker groups among them that are not away, and can't be asked."""
        return self._client.unasked
