"""A consumer's report of itself when an operator asks (`mqadmin consumerStatus`). Pure.

The broker passes the question (GET_CONSUMER_RUNNING_INFO) on to the client and its answer back, as
it is. Keys are those of RocketMQ's ConsumerRunningInfo, so that stock tools can show them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dledger.limits import MIB
from dledger.remoting.bodies import ConsumerRunningInfo, ProcessQueueInfo, SubscriptionData
from dledger.remoting.json_dialect import MessageQueue
from mqclient.consuming.progress import QueueProgress


def running_info(
    *,
    name_servers: Iterable[str],
    started_ms: int,
    subscriptions: Iterable[SubscriptionData],
    queues: Mapping[MessageQueue, QueueProgress],
    ordered: bool = False,
    consume_type: str = "CONSUME_ACTIVELY",
) -> ConsumerRunningInfo:
    """The answer of a consumer that reads these queues; `started_ms` is Unix time."""
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
