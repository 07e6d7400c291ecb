"""The administration of a cluster: topics, routes, brokers, how far consumer groups are.

::

    async with Admin("127.0.0.1:9876") as admin:
        await admin.topics.update("Orders", read_queues=8, write_queues=8)
        status = await admin.topics.status("Orders")

``topics``      create, change, delete, list, where they are
``groups``      consumer groups, and how far they are
``clients``     who is connected, and what they are doing
``brokers``     broker groups
``raft``        their members as a replicated log
``members``     members that come and go
``settings``    configs, key-value entries, write permissions
``statistics``  what comes in and goes out
``messages``    reading and finding messages
``session``     what every part shares
``requests``    how servers are reached
``results``     what is answered

Every call asks the servers anew; nothing is remembered but who led last. What concerns a broker
group goes to its leader and follows it through a failover, inside the deadline. Results are the
values of `mqclient.admin.results`. The requests of each call are those of RocketMQ's mqadmin.
"""

from __future__ import annotations

from mqclient import limits
from mqclient.admin.brokers import Brokers
from mqclient.admin.clients import Clients
from mqclient.admin.groups import Groups
from mqclient.admin.members import Members
from mqclient.admin.messages import Messages
from mqclient.admin.raft import Raft
from mqclient.admin.session import AdminSession, UnknownTarget
from mqclient.admin.settings import Settings
from mqclient.admin.statistics import Statistics
from mqclient.admin.topics import Topics
from mqclient.connection.lifetime import Living

__all__ = ["Admin", "UnknownTarget"]


class Admin(Living):
    """The parts, over the same connections. A request ends in `timeout_s`.

    `namesrv_addr` is "host:port;host:port".
    """

    def __init__(
        self,
        namesrv_addr: str = limits.NAMESRV_ADDR,
        *,
        timeout_s: float = limits.REQUEST_TIMEOUT_S,
    ) -> None:
        session = AdminSession(namesrv_addr, timeout_s)
        self._requests = session.requests
        self.topics = Topics(session)
        self.groups = Groups(session)
        self.clients = Clients(session)
        self.brokers = Brokers(session)
        self.raft = Raft(session)
        self.members = Members(session)
        self.settings = Settings(session)
        self.statistics = Statistics(session)
        self.messages = Messages(session)

    async def _start(self) -> None:
        await self._requests.__aenter__()

    async def _end(self, *, failed: bool) -> None:
        await self._requests.__aexit__(None, None, None)
