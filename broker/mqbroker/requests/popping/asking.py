"""Requests of POP, checked as RocketMQ does: with its codes, and in its order."""

from __future__ import annotations

import itertools
import random

from dledger.remoting.attributes import ALWAYS, priority_factor
from dledger.remoting.bodies import TopicConfig
from dledger.remoting.codes import ResponseCode
from dledger.remoting.command import Command, HeaderEncoding
from dledger.remoting.headers.pop import ANY_QUEUE, NotificationHeader, PopMessageHeader
from dledger.remoting.message import RETRY_PREFIX
from mqbroker import limits
from mqbroker.refusal import invalid, no_queue
from mqbroker.requests.core import Core
from mqbroker.requests.filters import MessageFilter, parse_subscription, selection
from mqbroker.requests.permissions import check_enabled, check_readable
from mqbroker.requests.popping.planning import Want
from mqbroker.state.attributes import MESSAGE_TYPE
from mqbroker.state.topics import check_reader

_starts = itertools.count()


def is_ours(request: Command) -> bool:
    """Whether a client of ours asks: others have no such headers."""
    return request.encoding is HeaderEncoding.MSGPACK


def want_of(core: Core, request: Command, header: PopMessageHeader) -> Want:
    """The messages that a POP asks for. Raises Refused."""
    count_max = limits.POP_MESSAGES_OURS_MAX if is_ours(request) else limits.POP_MESSAGES_MAX
    if not 0 < header.max_msg_nums <= count_max:
        raise invalid(f"maxMsgNums {header.max_msg_nums} is not within 1 and {count_max}")
    if not 0 < header.invisible_time <= limits.POP_INVISIBLE_S_MAX * 1000:
        raise invalid(
            f"invisibleTime {header.invisible_time} ms is not within 1 and "
            f"{limits.POP_INVISIBLE_S_MAX * 1000}"
        )
    attempt_id = header.attempt_id or ""
    if len(attempt_id.encode(errors="surrogatepass")) > limits.POP_ATTEMPT_BYTES_MAX:
        raise invalid(f"an attemptId of {len(attempt_id)} characters")
    wanted_bytes = header.max_msg_bytes or 0
    bytes_max = wanted_bytes if wanted_bytes > 0 else limits.PULL_BYTES_DEFAULT
    queue_ids = queues_of(core, header.consumer_group, header.topic, header.queue_id)
    by_priority = header.order is not True and _goes_by_priority(core, header)
    return Want(
        group=header.consumer_group,
        topic=header.topic,
        queue_ids=sorted(queue_ids, reverse=True) if by_priority else queue_ids,
        messages_max=header.max_msg_nums,
        bytes_max=min(bytes_max, limits.PULL_BYTES_MAX),
        invisible_ms=header.invisible_time,
        selection=selection(_filter(header), core.log.view),
        # A retry topic is read from its beginning, whatever the group's first members wanted.
        init_mode=0 if header.topic.startswith(RETRY_PREFIX) else header.init_mode,
        ordered=header.order is True,
        attempt_id=attempt_id,
        by_priority=by_priority,
    )


def _goes_by_priority(core: Core, header: PopMessageHeader) -> bool:
    """Whether a POP takes of the highest queue first: by its topic's type, and as often as its
    group wants it."""
    topic = core.definitions.topic(header.topic)
    if topic.attributes.get(MESSAGE_TYPE) != "PRIORITY":
        return False
    factor = priority_factor(core.definitions.group(header.consumer_group).attributes)
    return random.randrange(ALWAYS) < factor


def _filter(header: PopMessageHeader | NotificationHeader) -> MessageFilter:
    return parse_subscription(header.exp, header.exp_type)


def look_of(core: Core, header: NotificationHeader) -> Want:
    """A POP that is not made: whether there would be a message for it."""
    return Want(
        group=header.consumer_group,
        topic=header.topic,
        queue_ids=queues_of(core, header.consumer_group, header.topic, header.queue_id),
        messages_max=1,
        bytes_max=1,
        invisible_ms=0,
        selection=selection(_filter(header), core.log.view),
        init_mode=0,
        ordered=header.order is True,
        attempt_id=header.attempt_id or "",
    )


def queues_of(core: Core, group: str, topic: str, queue_id: int) -> tuple[int, ...]:
    """The queues that a request means, beginning with another one each time. Refused if the topic,
    the queue or the group is not there, or may not be read."""
    check_reader(topic, group)
    queues = readable(core, topic).read_queue_nums
    if not ANY_QUEUE <= queue_id < queues:
        raise no_queue(topic, queue_id, queues, ResponseCode.INVALID_PARAMETER)
    core.definitions.ensure_group(group)
    check_enabled(core.definitions.group(group))
    if queue_id != ANY_QUEUE:
        return (queue_id,)
    first = next(_starts) % queues
    return (*range(first, queues), *range(first))


def readable(core: Core, topic: str) -> TopicConfig:
    """A topic that may be read. Refused."""
    config = core.definitions.topic(topic)
    # A change that is appended comes before what is handed out from now on.
    check_readable(core.definitions.lasting(topic) or config, core.permission)
    return config


def check_waited(core: Core, group: str, topic: str) -> None:
    """Refuse a request that has waited, if its topic or group is gone, or not to be read now."""
    readable(core, topic)
    check_enabled(core.definitions.group(group))
