"""The administration of a cluster: topics, routes, brokers, how far consumer groups are.

::

    async with Admin("127.0.0.1:9876") as admin:
        await admin.update_topic("Orders", read_queues=8, write_queues=8)
        status = await admin.topic_status("Orders")

``topics``      create, change, delete, list
``groups``      consumer groups
``clients``     who is connected, and what they are doing
``brokers``     broker groups
``raft``        their members as a replicated log
``membership``  members that come and go
``settings``    configs, key-value entries, write permissions
``statistics``  what comes in and goes out
``messages``    reading without being a consumer
``queries``     finding messages
``session``     what every part shares
``requests``    how servers are reached
``results``     what is answered

Every call asks the servers anew; nothing is remembered but who led last. What concerns a broker
group goes to its leader and follows it through a failover, inside the deadline. Results are the
values of `mqclient.admin.results`. The requests of each call are those of RocketMQ's mqadmin.
"""

from __future__ import annotations

from mqclient.admin.brokers import BrokerAdmin
from mqclient.admin.clients import ClientAdmin
from mqclient.admin.membership import MembershipAdmin
from mqclient.admin.queries import QueryAdmin
from mqclient.admin.session import UnknownTarget
from mqclient.admin.statistics import StatisticsAdmin

__all__ = ["Admin", "UnknownTarget"]


class Admin(BrokerAdmin, MembershipAdmin, StatisticsAdmin, ClientAdmin, QueryAdmin):
    """One session: `async with Admin("host:port;host:port", timeout_s=3.0) as admin`."""
