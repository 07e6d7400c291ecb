"""The administration of a cluster: topics, routes, brokers, how far consumer groups are.

::

    async with Admin("127.0.0.1:9876") as admin:
        await admin.update_topic("Orders", read_queues=8, write_queues=8)
        status = await admin.topic_status("Orders")

Every call asks the servers anew; nothing is remembered but who led last. What concerns a broker
group goes to its leader and follows it through a failover, inside the deadline. Results are the
values of `client.admin.results`. The requests of each call are those of RocketMQ's mqadmin.
"""

from __future__ import annotations

from client.admin.brokers import BrokerAdmin
from client.admin.clients import ClientAdmin
from client.admin.membership import MembershipAdmin
from client.admin.queries import QueryAdmin
from client.admin.session import UnknownTarget
from client.admin.statistics import StatisticsAdmin

__all__ = ["Admin", "UnknownTarget"]


class Admin(BrokerAdmin, MembershipAdmin, StatisticsAdmin, ClientAdmin, QueryAdmin):
    """One session: `async with Admin("host:port;host:port", timeout_s=3.0) as admin`."""
