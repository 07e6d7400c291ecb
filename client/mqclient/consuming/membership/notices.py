"""Notices that brokers send to the members of a group, or pass on from a tool. Pure.

==== ==================================== ====================================================
code from the broker                      what a member does
==== ==================================== ====================================================
40   the group's members changed          shares the queues out again; with POP nothing
220  the group was reset                  drops what it has fetched, and reads from the new offset
221  how far is it?                       tells its positions
307  what does it do?                     tells its queues and settings
309  handle this message                  refuses: see `refused`
==== ==================================== ====================================================

39 and 326 are for producers: the end of a transaction, and the reply to a request. The broker
passes answers on as they are: the keys of 307 are those of RocketMQ's ConsumerRunningInfo, so that
stock tools can show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dledger.limits import MIB
from dledger.remoting.bodies import (
    ConsumerRunningInfo,
    ConsumerStatusFromClientBody,
    Dialect,
    ProcessQueueInfo,
    ResetOffsetBody,
    SubscriptionData,
    decode_body,
    encode_body,
)
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import ResetConsumerClientOffsetHeader, decode_header
from dledger.remoting.json_dialect import MessageQueue
from mqclient.connection.answers import checked_offset
from mqclient.consuming.progress import QueueProgress


def new_offsets(notice: Command, group: str | None) -> dict[MessageQueue, int]:
    """Where a group is to go on, by queue; empty if the notice is for another group.

    Raises BadInput for what is no such notice.
    """
    header = decode_header(ResetConsumerClientOffsetHeader, notice)
    if header.group != group:
        return {}
    table = decode_body(ResetOffsetBody, notice.payload).offset_table
    return {
        queue: checked_offset(offset, f"the new offset of {queue}")
        for queue, offset in table.items()
        if queue.topic == header.topic
    }


def positions_reply(question: Command, positions: Mapping[MessageQueue, int]) -> Command:
    """The answer to how far a member is (`mqadmin getConsumerStatus`)."""
    body = ConsumerStatusFromClientBody(dict(positions))
    return question.reply(body=encode_body(body, Dialect.LOOSE))


def running_info(
    *,
    name_servers: Iterable[str],
    started_ms: int,
    subscriptions: Iterable[SubscriptionData],
    queues: Mapping[MessageQueue, QueueProgress],
    ordered: bool = False,
    consume_type: str = "CONSUME_ACTIVELY",
) -> ConsumerRunningInfo:
    """A report of these queues for `mqadmin consumerStatus`; `started_ms` is Unix time."""
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": ";".join(name_servers),
            "PROP_CONSUME_TYPE": consume_type,
            "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
            "PROP_CONSUME_ORDERLY": str(ordered).lower(),
            "PROP_CLIENT_VERSION": "V4_9_8",
        },
        subscription_set=list(subscriptions),
        mq_table={queue: _queue_info(progress) for queue, progress in queues.items()},
    )


def _queue_info(progress: QueueProgress) -> ProcessQueueInfo:
    first = progress.buffered_from
    return ProcessQueueInfo(
        commit_offset=progress.committed,
        cached_msg_min_offset=first or 0,
        cached_msg_max_offset=0 if first is None else progress.fetch_offset - 1,
        cached_msg_count=progress.buffered,
        cached_msg_size_in_mib=progress.buffered_bytes // MIB,
    )


def refused(question: Command) -> Command | None:
    """The answer to what a member does not do; None for what is no such request."""
    if question.code != RequestCode.CONSUME_MESSAGE_DIRECTLY:
        return None
    return question.reply(
        ResponseCode.SYSTEM_ERROR,
        remark="this client handles a message when its group is given it, and not by order of a "
        "tool: send it to its topic again (mqadmin sendMessage, redriveDeadLetters)",
    )
