"""Topics and groups as the leader sees them: those applied, and changes on their way.

A send to an unknown topic makes the topic first, as a control entry before its messages; a second
send that comes before the entry is applied must see the same topic. A topic that is being deleted
takes no more sends, so no message of it comes after the deletion in the log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

from dledger.errors import AppendError
from dledger.failpoints import failpoint
from dledger.ledger.outcome import outcome_of
from dledger.log.entry import Kind
from dledger.raft.appends import Appended, OnDone
from dledger.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from dledger.remoting.codes import ResponseCode
from dledger.remoting.message import DEFAULT_TOPIC, DLQ_PREFIX, RETRY_PREFIX
from dledger.remoting.names import TOOLS_GROUP
from mqbroker import limits
from mqbroker.leader.appending.entries import Entries
from mqbroker.leader.assignments import Assignments
from mqbroker.leader.role import Role
from mqbroker.refusal import Refused, busy, no_group
from mqbroker.state.attributes import MESSAGE_TYPE
from mqbroker.state.control import (
    Control,
    DeleteTopic,
    PutGroups,
    PutTopics,
    encode_control,
)
from mqbroker.state.machine import Machine
from mqbroker.state.topics import (
    check_group_name,
    check_topic_name,
    read_write,
    retry_topic,
    topic_for_first_send,
)

ConfigT = TypeVar("ConfigT", TopicConfig, SubscriptionGroupConfig)


def ignored(_: object) -> None:
    """The outcome of an append for which no caller waits."""


class Definitions:
    """Finds, makes, changes and deletes topics and groups. Only while leading."""

    def __init__(
        self,
        machine: Machine,
        entries: Entries,
        role: Role,
        assignments: Assignments,
        auto_create: Callable[[], bool],
    ) -> None:
        self._machine = machine
        self._entries = entries
        self._role = role
        self._assignments = assignments
        self._auto_create = auto_create
        #: The connection whose request is served.
        self.maker: object | None = None
        self._made: WeakKeyDictionary[object, Counter[str]] = WeakKeyDictionary()
        self._topics_coming: dict[str, TopicConfig] = {}
        self._topics_going: set[str] = set()
        self._groups_coming: dict[str, SubscriptionGroupConfig] = {}
        self._beginning: set[str] = set()

    def reset(self) -> None:
        """Leadership begins: no change is on its way."""
        self.maker = None
        self._made.clear()
        self._topics_coming.clear()
        self._topics_going.clear()
        self._groups_coming.clear()
        self._beginning.clear()

    def topic(self, topic: str) -> TopicConfig:
        """The config of an existing topic. Refused with TOPIC_NOT_EXIST, also for a topic that is
        being deleted: a request made now would be applied after the deletion."""
        config = self._machine.topics.get(topic)
        if config is None or topic in self._topics_going:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic!r} does not exist")
        return config

    def lasting(self, topic: str) -> TopicConfig | None:
        """A topic as it will be for an entry that is appended now; None if it does not exist, or is
        being deleted."""
        return None if topic in self._topics_going else self._known(topic)

    def topic_type(self, topic: str) -> str | None:
        """The type of message that a topic is for, if it has one."""
        config = self._known(topic)
        return None if config is None else config.attributes.get(MESSAGE_TYPE)

    def topic_for_send(self, topic: str, queues_wanted: int | None) -> TopicConfig:
        """The topic of a send, as it exists or would be made. Refused with the send's error code.

        It is not made here, but after the whole request was checked: see `ensure_topic`.
        """
        config = self._known(topic)
        if topic in self._topics_going:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"the topic {topic!r} is being deleted")
        if config is not None:
            return config
        check_topic_name(topic)
        default = self._known(DEFAULT_TOPIC) if self._auto_create() else None
        return topic_for_first_send(topic, default, queues_wanted)

    def ensure_topic(self, config: TopicConfig) -> None:
        """Make the topic of a send unless it exists; don't wait for it."""
        if self._known(config.topic_name) is None:
            if not self._is_given_up_in(config):
                self._share("topics", 1, limits.TOPICS_MAX - self._topics_kept)
            self.put_topics([config])

    def _known(self, topic: str) -> TopicConfig | None:
        """A topic that exists, or will exist for all entries that are appended from now on."""
        return self._topics_coming.get(topic) or self._machine.topics.get(topic)

    def put_topics(self, configs: list[TopicConfig], on_done: OnDone = ignored) -> None:
        """Make or change topics, all at once."""
        if not all(map(self._is_given_up_in, configs)):
            self._check_bounds(configs)

        coming = {config.topic_name: config for config in configs}
        body = encode_control(PutTopics(configs, self._assignments.now_ms()))
        failpoint("topic.put")
        self._put(self._topics_coming, coming, body, on_done)

    def _check_bounds(self, configs: list[TopicConfig]) -> None:
        new = sum(self._machine.topics.get(config.topic_name) is None for config in configs)
        if new:
            _check_count("topics", self._topics_kept + new, limits.TOPICS_MAX)
        more = self._more_queues(configs)
        if more:
            count = self._machine.topics.queues + self._more_queues(self._topics_coming.values())
            _check_count("queues of topics", count + more, limits.QUEUES_MAX)

    @property
    def _topics_kept(self) -> int:
        return len(self._machine.topics) + len(self._topics_coming)

    def _more_queues(self, configs: Iterable[TopicConfig]) -> int:
        """How many queues these configs add to those that there are."""
        pairs = ((config, self._machine.topics.get(config.topic_name)) for config in configs)
        return sum(max(0, new.queues - (old.queues if old else 0)) for new, old in pairs)

    def _is_given_up_in(self, topic: TopicConfig) -> bool:
        """Whether it is for the retries or dead letters of a group that there is. However many
        topics there are, messages can be given up; and groups have a bound of their own."""
        name = topic.topic_name
        group = name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
        known = group != name and self._machine.groups.get(group) is not None
        return known and topic.queues == 1

    def delete_topic(self, topic: str, on_done: OnDone) -> None:
        """Delete a topic with everything that belongs to it."""

        def done(outcome: Appended | AppendError) -> None:
            self._topics_going.discard(topic)
            self._assignments.forget(topic)
            on_done(outcome)

        body = encode_control(DeleteTopic(topic, self._assignments.now_ms()))
        self._topics_going.add(topic)
        self._append(body, done)

    def group(self, group: str) -> SubscriptionGroupConfig:
        """A group that exists, or will exist for all entries that are appended from now on."""
        config = self.known_group(group)
        if config is None:
            raise no_group(group)
        return config

    def known_group(self, group: str) -> SubscriptionGroupConfig | None:
        """The group that `group` gives; None if it does not exist."""
        return self._groups_coming.get(group) or self._machine.groups.get(group)

    def ensure_group(self, group: str) -> None:
        """Make a consumer group unless it exists; don't wait for it. Groups of tools are not
        made."""
        if group == TOOLS_GROUP or self._machine.groups.beginning(group) is not None:
            return
        check_group_name(group)
        self._begin([group])

    def ensure_consumers(self, groups: Iterable[str]) -> None:
        """Make the groups of consumers, and topics for their retries.

        Two entries, however many groups; a thousand would each cost a turn of the loop.
        """
        wanted = [group for group in dict.fromkeys(groups) if group != TOOLS_GROUP]
        for group in wanted:
            check_group_name(group)
        self._begin(wanted)
        topics = [retry_topic(group) for group in wanted]
        lacking = [read_write(topic, 1) for topic in topics if self._known(topic) is None]
        if lacking:
            self._share("topics", len(lacking), limits.TOPICS_MAX - self._topics_kept)
            self.put_topics(lacking)

    def _share(self, what: str, new: int, free: int) -> None:
        """Count what the present client makes without an operator's word. Refuse what would be more
        than it leaves free: else a program that makes up names would keep everybody from them."""
        if self.maker is None or not new:
            return
        made = self._made.setdefault(self.maker, Counter())
        if made[what] and made[what] + new > free - new:
            raise busy(
                f"{made[what]} {what} were made over this connection, and {free} are left for "
                "others: make further ones with mqadmin"
            )
        made[what] += new

    def _begin(self, groups: Iterable[str]) -> None:
        """The first consumers of groups have come: note it, and make those that do not exist."""
        begun = self._machine.groups.beginning
        new = [name for name in groups if begun(name) is None and name not in self._beginning]
        if not new:
            return
        free = limits.GROUPS_MAX - len(self._machine.groups) - len(self._groups_coming)
        self._share("consumer groups", sum(self.known_group(name) is None for name in new), free)
        configs = [self.known_group(name) or SubscriptionGroupConfig(name) for name in new]

        def done(_: Appended | AppendError) -> None:
            self._beginning.difference_update(new)

        self._beginning.update(new)
        try:
            self.put_groups(configs, done, begins=True)
        except BaseException:
            self._beginning.difference_update(new)
            raise

    def put_groups(
        self, configs: list[SubscriptionGroupConfig], on_done: OnDone, *, begins: bool = False
    ) -> None:
        """Make or change consumer groups, all at once. `begins`: their first consumers have
        come."""
        new = sum(self._machine.groups.get(config.group_name) is None for config in configs)
        if new:
            count = len(self._machine.groups) + len(self._groups_coming) + new
            _check_count("consumer groups", count, limits.GROUPS_MAX)

        coming = {config.group_name: config for config in configs}
        body = encode_control(PutGroups(configs, self._assignments.now_ms(), begins))
        self._put(self._groups_coming, coming, body, on_done)

    def _put(
        self, table: dict[str, ConfigT], coming: dict[str, ConfigT], body: bytes, on_done: OnDone
    ) -> None:
        """Append new configs, which are in the table of those that are coming meanwhile."""

        def done(outcome: Appended | AppendError) -> None:
            for name, config in coming.items():
                if table.get(name) is config:
                    del table[name]
            on_done(outcome)

        table.update(coming)
        self._append(body, done)

    def change(self, control: Control, on_done: OnDone = ignored) -> None:
        """Append a control entry. Raises BadInput, before anything is done, if it can't be written.

        Raises Refused if it certainly was not appended; `on_done` hears of that, too.
        """
        self._append(encode_control(control), on_done)

    async def changed(self, control: Control) -> object:
        """Make a change; returns what applying it returned. Raises AppendError or Refused."""
        return (await outcome_of(partial(self.change, control))).result

    def _append(self, body: bytes, on_done: OnDone) -> None:
        try:
            self._entries.append_nowait(body, Kind.CONTROL, on_done)
        except AppendError as error:
            on_done(error)
            raise self._role.refusal_of(error) from error


def _check_count(what: str, count: int, count_max: int) -> None:
    if count > count_max:
        raise busy(
            f"there would be {count} {what}; at most {count_max} are kept: delete unused ones"
        )
