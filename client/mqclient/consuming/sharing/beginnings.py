"""Decides which is older: a queue without an offset, or the reading of it.

A queue that came into being after reading began is read from its first message, wherever reading is
to begin otherwise. Within a broker group the brokers know by themselves what came first. A group
that begins anew on a further broker group began elsewhere already; so does one whose topics are
nowhere yet, which is made known to all broker groups. Who keeps offsets in a file, or nowhere,
knows when it began. Times are those of brokers and clients, so clocks that are apart may decide
wrongly about what happened within that span.
"""

from __future__ import annotations

from contextlib import suppress

from dledger.errors import BadInput, RemotingError
from dledger.remoting.bodies import TopicRouteData
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import QueryConsumerOffsetHeader, encode_header
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.message import RETRY_PREFIX
from dledger.remoting.numbers import INT64_MAX
from mqclient import limits
from mqclient.connection.answers import cluster_in
from mqclient.connection.leaders import LeaderFinder
from mqclient.errors import ClientError

_NEVER = INT64_MAX


async def learn_brokers(finder: LeaderFinder) -> None:
    """Find all broker groups that the first name server that answers knows; heartbeats go to them
    from now on."""
    command = Command(RequestCode.GET_BROKER_CLUSTER_INFO, {})
    for address in finder.name_servers:
        with suppress(RemotingError, BadInput):
            answer = await finder.pool.request(address, command, limits.REQUEST_TIMEOUT_S)
            if answer.code == ResponseCode.SUCCESS:
                brokers = [*cluster_in(answer).broker_addr_table.values()]
                finder.routes.learn_members(TopicRouteData(broker_datas=brokers))
                return


async def ask_place(
    finder: LeaderFinder,
    group: str,
    queue: MessageQueue,
    *,
    takes: bool | None = None,
    waits_s: float = 0.0,
) -> Command:
    """Where a group is in a queue, or QUERY_NOT_FOUND; `takes` says that this member takes it over,
    or has given it up. The broker waits so long for another one. Raises ClientError,
    RemotingError."""
    query = QueryConsumerOffsetHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
        takes=takes,
        waits_ms=int(waits_s * 1000) or None,
    )
    return await finder.granted(
        f"the offset of {queue} for group {group!r}",
        queue.broker_name,
        queue.topic,
        Command(RequestCode.QUERY_CONSUMER_OFFSET, encode_header(query)),
        limits.REQUEST_TIMEOUT_S,
        ResponseCode.QUERY_NOT_FOUND,
        waits_s,
    )


def says(answer: Command, what: str) -> bool:
    """Whether a broker says so of a queue: another member has it (`held`), or by this commit it is
    given up (`givenUp`)."""
    return answer.ext.get(what) in (True, "true")


def born_ms(answer: Command) -> int:
    """When the queue came into being in which a group has no place; 0 if that is not known."""
    return _number(answer, "bornMs", 0)


async def is_younger(finder: LeaderFinder, group: str, queue: MessageQueue, at_ms: int) -> bool:
    """Whether a queue that came into being then is younger than its group, by other broker
    groups."""
    if not at_ms:
        return False
    await learn_brokers(finder)
    for broker_name in finder.routes.broker_names():
        retries = MessageQueue(f"{RETRY_PREFIX}{group}", broker_name, 0)
        if broker_name != queue.broker_name:
            with suppress(RemotingError, ClientError):
                answer = await ask_place(finder, group, retries)
                if 0 <= _number(answer, "begunMs", _NEVER) <= at_ms:
                    return True
    return False


def _number(answer: Command, name: str, default: int) -> int:
    value = answer.ext.get(name)
    return value if type(value) is int and value >= 0 else default
