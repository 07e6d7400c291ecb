"""Topics: their configs, and the rules by which they are made. Part of the replicated state. Pure.

A topic is made by an operator, or by the first send to it if `TBW102` (the default topic, which
lends its queue count) has the inherit permission. Retry and dead-letter topics of a group are made
by the broker. Rules and error codes: RocketMQ's TopicValidator and TopicConfigManager.

A topic's *life* is the index of the entry that made it. One that is deleted and made again has
another life: no position, lock or waiting message of an earlier life is good for it. A queue comes
into being when its topic gets so many queues to read, and again if they were fewer meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from dledger.errors import BadInput
from dledger.remoting import names
from dledger.remoting.bodies import DataVersion, TopicConfig
from dledger.remoting.codes import ResponseCode
from dledger.remoting.message import DEFAULT_TOPIC, DLQ_PREFIX, REPLY_SUFFIX, RETRY_PREFIX
from dledger.remoting.names import (
    CHECKED_TOO_OFTEN_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PERM_INHERIT,
    PERM_READ,
    PERM_READ_WRITE,
    PERM_WRITE,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TOOLS_GROUP,
    TRACE_TOPIC,
    UNREADABLE,
    UNSENDABLE,
)
from mqbroker import limits
from mqbroker.refusal import Refused, no_permission, of_broker, system_error

#: RocketMQ's TopicFilterType.
FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})

#: Queues of the topic named like the cluster (as many as in RocketMQ's TopicConfig).
CLUSTER_TOPIC_QUEUES: Final = 16


def retry_topic(group: str) -> str:
    """The topic that holds a group's messages to try again."""
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    """The topic that holds a group's messages that were tried too often."""
    return DLQ_PREFIX + group


def check_topic_name(topic: str) -> None:
    """Refuse a name that no topic may have."""
    _refuse_if_bad(names.check_topic_name, topic)


def check_group_name(group: str) -> None:
    """Refuse a name that no group may have."""
    _refuse_if_bad(names.check_group_name, group)


def check_reader(topic: str, group: str) -> None:
    """Refuse to give one of the broker's own messages to a group that is not the tools'.

    A message that waits there for its time or its transaction would be delivered before it.
    """
    if topic in UNREADABLE and group != TOOLS_GROUP:
        raise no_permission(
            f"the topic {topic!r} belongs to the broker: only tools (group {TOOLS_GROUP}) read it"
        )


def _refuse_if_bad(check: Callable[[str], None], name: str) -> None:
    try:
        check(name)
    except BadInput as error:
        raise system_error(str(error)) from error


def read_write(topic: str, queues: int) -> TopicConfig:
    """An ordinary topic with as many read as write queues."""
    return TopicConfig(
        topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=PERM_READ_WRITE
    )


def default_topic(queues: int) -> TopicConfig:
    """`TBW102`, from which a topic made by its first send takes its queue count."""
    return inheritable(DEFAULT_TOPIC, queues)


def inheritable(topic: str, queues: int) -> TopicConfig:
    """A topic that clients may name as the one to take the queue count from."""
    config = read_write(topic, queues)
    return msgspec.structs.replace(config, perm=config.perm | PERM_INHERIT)


def system_topics(
    cluster: str, broker_name: str, delay_levels: int, default_queues: int | None
) -> list[TopicConfig]:
    """The topics that a broker makes for itself; `TBW102` only if it lends queue counts.

    The reply topic holds nothing: its route leads repliers to the brokers (see
    `mqbroker.requests.sending.request_reply`). Clients and tools test a cluster or a broker with
    the topics that are named like them.
    """
    topics = [
        read_write(SCHEDULE_TOPIC, delay_levels),
        read_write(TIMER_TOPIC, 1),
        read_write(HALF_TOPIC, 1),
        read_write(CHECKED_TOO_OFTEN_TOPIC, 1),
        read_write(OP_TOPIC, 1),
        read_write(TRACE_TOPIC, 1),
        read_write(cluster + REPLY_SUFFIX, 1),
    ]
    for name, queues in ((cluster, CLUSTER_TOPIC_QUEUES), (broker_name, 1)):
        # Not every name of a cluster or group is a legal name of a topic.
        with suppress(BadInput):
            names.check_topic_name(name)
            topics.append(inheritable(name, queues))
    return topics if default_queues is None else [*topics, default_topic(default_queues)]


def topic_for_first_send(
    topic: str, default: TopicConfig | None, queues_wanted: int | None
) -> TopicConfig:
    """The config of a new topic that a send names. Refused if it may not be made."""
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return read_write(topic, 1)
    if default is None or not default.perm & PERM_INHERIT:
        raise Refused(
            ResponseCode.TOPIC_NOT_EXIST,
            f"the topic {topic!r} does not exist and is not made by sending to it "
            "(autoCreateTopicEnable is off): make it with `mqadmin updateTopic`",
        )
    queues = default.write_queue_nums
    if queues_wanted is not None and queues_wanted > 0:
        queues = min(queues_wanted, queues)
    return msgspec.structs.replace(read_write(topic, queues), perm=default.perm & ~PERM_INHERIT)


def check_config(config: TopicConfig) -> None:
    """Refuse a config that an operator gave, naming the value."""
    check_topic_name(config.topic_name)
    if config.topic_name in UNSENDABLE:
        raise system_error(of_broker(config.topic_name))
    if not 0 <= config.perm <= PERM_READ_WRITE | PERM_INHERIT:
        raise system_error(
            f"perm {config.perm} is no sum of {PERM_READ} read, {PERM_WRITE} write and "
            f"{PERM_INHERIT} inherit"
        )
    if config.topic_filter_type not in FILTER_TYPES:
        raise system_error(
            f"topicFilterType {config.topic_filter_type[:80]!r} is none of "
            f"{', '.join(sorted(FILTER_TYPES))}"
        )
    for name, count in (
        ("readQueueNums", config.read_queue_nums),
        ("writeQueueNums", config.write_queue_nums),
    ):
        if not 0 < count <= limits.QUEUES_PER_TOPIC_MAX:
            raise system_error(f"{name} {count} is not within 1 to {limits.QUEUES_PER_TOPIC_MAX}")


class Birth(NamedTuple):
    """The index and position of the entry by which the queues of a topic from `first_queue` on came
    into being, and its writer's time. All are 0 for what is older than this was noted."""

    first_queue: int = 0
    entry: int = 0
    position: int = 0
    at_ms: int = 0


class Topics:
    """All topic configs, with the version that name servers compare."""

    def __init__(self) -> None:
        self._configs: dict[str, TopicConfig] = {}
        self._births: dict[str, list[Birth]] = {}
        #: The number of queues of all topics.
        self.queues = 0
        self.version = DataVersion(counter=0, timestamp=0)

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._configs.values())

    def get(self, topic: str) -> TopicConfig | None:
        """A topic's config, if it exists."""
        return self._configs.get(topic)

    def queues_of(self, topic: str) -> int:
        """How many queues a topic has, to read or to write; 0 if it does not exist."""
        config = self._configs.get(topic)
        return 0 if config is None else config.queues

    def life(self, topic: str) -> Birth:
        """The birth of a topic, as it is now."""
        of_topic = self._births.get(topic)
        return of_topic[0] if of_topic else Birth()

    def birth(self, topic: str, queue_id: int) -> Birth:
        """The birth of a queue."""
        of_topic = self._births.get(topic, ())
        return next((each for each in reversed(of_topic) if each.first_queue <= queue_id), Birth())

    def put(
        self, configs: Iterable[TopicConfig], now_ms: int, index: int = 0, position: int = 0
    ) -> None:
        """Make or change topics, by the entry `index`. If nothing differs the version stays."""
        changed = [config for config in configs if self.get(config.topic_name) != config]
        for config in changed:
            self._note_births(config, Birth(0, index, position, now_ms))
            known = self.get(config.topic_name)
            self.queues += config.queues - (known.queues if known is not None else 0)
            self._configs[config.topic_name] = config
        if changed:
            self.touch(now_ms)

    def _note_births(self, config: TopicConfig, birth: Birth) -> None:
        known, queues = self.get(config.topic_name), config.read_queue_nums
        if known is None:
            self._births[config.topic_name] = [birth]
            return
        births = self._births.setdefault(config.topic_name, [Birth()])
        births[1:] = [each for each in births[1:] if each.first_queue < queues]
        if queues > known.read_queue_nums:
            births.append(birth._replace(first_queue=known.read_queue_nums))

    def delete(self, topic: str, now_ms: int) -> None:
        """Remove a topic, if it exists."""
        self._births.pop(topic, None)
        gone = self._configs.pop(topic, None)
        if gone is not None:
            self.queues -= gone.queues
            self.touch(now_ms)

    def births(self) -> dict[str, list[Birth]]:
        """The births for a snapshot."""
        return {topic: list(births) for topic, births in self._births.items()}

    def restore(
        self,
        configs: Iterable[TopicConfig],
        version: DataVersion,
        births: Mapping[str, Iterable[Birth]] | None = None,
    ) -> None:
        """Take over what a snapshot kept; one of an older version has no births."""
        self._configs = {config.topic_name: config for config in configs}
        self.queues = sum(config.queues for config in self._configs.values())
        self._births = {topic: list(each) for topic, each in (births or {}).items()}
        self.version = version

    def touch(self, now_ms: int) -> None:
        """Count a change: name servers must get the topics again."""
        self.version = DataVersion(counter=self.version.counter + 1, timestamp=now_ms)
