"""The administration of a cluster: topics, routes, brokers, progress of consumer groups.

::

    async with Admin("127.0.0.1:9876") as admin:
        await admin.topics.update("Orders", read_queues=8, write_queues=8)
        status = await admin.topics.status("Orders")

``topics``        create, change, delete, list, routes
``groups``        consumer groups, and their progress
``clients``       the connected clients, and what they do
``brokers``       broker groups
``raft``          the members of a broker group, and its leader
``members``       adding and removing members
``replicas``      copies of replicas
``settings``      configs, key-value entries, write permissions
``statistics``    traffic by topic and group
``messages``      reading and finding messages
``dead_letters``  listing and redriving what a group gave up
``doctor``        what is wrong, and what to do about it
``session``       what every part shares
``access``        users, and what each may do
``requests``      sends requests to servers
``results``       the results of calls

Every call asks the servers anew; only the last leaders are remembered. A request about a broker
group goes to its leader, and within the deadline follows a failover. Results are the values of
`mqclient.admin.results`. The requests of each call are those of RocketMQ's mqadmin.
"""

from __future__ import annotations

from pathlib import Path

from dledger.tls.options import AskedTls
from dledger.trust.rolling import Secrets
from dledger.trust.secret import read_secrets
from mqclient import limits
from mqclient.admin.access.audit import Audit
from mqclient.admin.access.rights import Rights
from mqclient.admin.access.users import Users
from mqclient.admin.brokers import Brokers
from mqclient.admin.clients import Clients
from mqclient.admin.dead_letters import DeadLetters
from mqclient.admin.doctor.gathering import Doctor
from mqclient.admin.groups import Groups
from mqclient.admin.members import Members
from mqclient.admin.messages import Messages
from mqclient.admin.raft import Raft
from mqclient.admin.replicas import Replicas
from mqclient.admin.session import AdminSession, SessionClient, UnknownTarget
from mqclient.admin.settings import Settings
from mqclient.admin.statistics import Statistics
from mqclient.admin.topics import Topics
from mqclient.arguments import check_seconds
from mqclient.connection.credentials import Credentials
from mqclient.signatures import checked

__all__ = ["Admin", "UnknownTarget"]


@checked
class Admin(SessionClient):
    """An administration client; its parts share the connections. A request ends after `timeout_s`.

    `namesrv_addr` is "host:port;host:port". `user` and `secret` (its password) sign each request.
    `secret_file` is the file of the cluster's secret. Brokers want a proof of the secret for
    changes from addresses that their `adminAddresses` does not list. Without a user, requests are
    signed as the cluster.
    """

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        *,
        timeout_s: float = limits.REQUEST_TIMEOUT_S,
        secret_file: str | Path | None = None,
        user: str | None = None,
        secret: str | None = None,
        tls: AskedTls = None,
    ) -> None:
        check_seconds("timeout_s", timeout_s, above_zero=True)
        secrets = Secrets(*(() if secret_file is None else read_secrets(Path(secret_file))))
        if secret_file is not None and user is None and secret is None:
            credentials: Credentials | None = Credentials.of_file(Path(secret_file), secrets)
        else:
            credentials = Credentials.of(user, secret)
        session = AdminSession(namesrv_addr, timeout_s, secrets, credentials, tls)
        super().__init__(session)
        self.topics = Topics(session)
        self.groups = Groups(session)
        self.clients = Clients(session)
        self.brokers = Brokers(session)
        self.raft = Raft(session)
        self.members = Members(session)
        self.replicas = Replicas(session)
        self.settings = Settings(session)
        self.statistics = Statistics(session)
        self.messages = Messages(session)
        self.dead_letters = DeadLetters(session)
        self.doctor = Doctor(session)
        self.users = Users(session)
        self.rights = Rights(session)
        self.audit = Audit(session)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Results that calls have left out so far: a sentence for each broker group that is
        away."""
        return tuple(text for _, text in sorted(self._session.left_out.items()))

    @property
    def unasked(self) -> tuple[str, ...]:
        """Names of the broker groups among them that are not away, and can't be asked: they have no
        leader, for example."""
        return tuple(sorted(self._session.unasked))
