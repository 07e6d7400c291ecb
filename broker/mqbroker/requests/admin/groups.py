"""Administration of groups: their settings, their members, their subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable
from functools import partial

from dledger.ledger.outcome import outcome_of
from dledger.net import Connection
from dledger.net.turns import encode_in_turns, result_in_turns
from dledger.remoting import bodies, headers
from dledger.remoting.bodies import decode_body, encode_body
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header
from dledger.trust.rights import DELETE, GET, SIGNED, cluster, group, topic
from mqbroker import limits
from mqbroker.refusal import Refused, no_group, system_error
from mqbroker.requests import rights
from mqbroker.requests.admin.changes import check_rows, named_only
from mqbroker.requests.core import Core
from mqbroker.requests.groups.membership import Client, Membership
from mqbroker.requests.needs import by_leader, changes
from mqbroker.state.attributes import GROUP_ATTRIBUTES, alter
from mqbroker.state.control import DeleteGroup
from mqbroker.state.topics import check_group_name


class GroupAdminHandler:
    """Answers requests about consumer groups' settings, members and subscriptions."""

    def __init__(self, core: Core, membership: Membership) -> None:
        self._core = core
        self._membership = membership

    @changes(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, rights=rights.PUT_GROUP)
    async def put_group(self, request: Command, _: Connection) -> Command:
        """Make or change a group; answered once applied."""
        config = decode_body(bodies.SubscriptionGroupConfig, request.payload)
        changes = decode_header(headers.UpdateAndCreateSubscriptiongroupHeader, request).changes
        return await self._put(request, [config], changes)

    @changes(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, rights=rights.PUT_GROUPS)
    async def put_groups(self, request: Command, _: Connection) -> Command:
        """Make or change all of these groups, or none."""
        given = decode_body(bodies.SubscriptionGroupList, request.payload).group_config_list
        check_rows("groupConfigList", given)
        return await self._put(request, given)

    async def _put(
        self,
        request: Command,
        given: list[bodies.SubscriptionGroupConfig],
        changes: str | None = None,
    ) -> Command:
        with self._core.replies.latencies.groups.timed():
            configs = [self._changed(config, changes) for config in given]
            await outcome_of(partial(self._core.definitions.put_groups, configs))
            return request.reply()

    def _changed(
        self, given: bodies.SubscriptionGroupConfig, changes: str | None
    ) -> bodies.SubscriptionGroupConfig:
        """A group as it would be. Refused."""
        check_group_name(given.group_name)
        known = self._core.definitions.known_group(given.group_name)
        config = named_only(known, given, changes)
        current = None if known is None else known.attributes
        config.attributes = alter(current, config.attributes, GROUP_ATTRIBUTES)
        return config

    @changes(RequestCode.DELETE_SUBSCRIPTIONGROUP, rights=group(DELETE, at="groupName"))
    async def delete_group(self, request: Command, _: Connection) -> Command:
        """Delete a group; `removeOffset` (5.x: `cleanOffset`) takes its offsets too."""
        header = decode_header(headers.DeleteSubscriptiongroupHeader, request)
        with_offsets = bool(header.remove_offset or header.clean_offset)
        now_ms = self._core.assignments.now_ms()
        # The group's retry and dead-letter topics stay: they hold messages.
        await self._core.definitions.changed(DeleteGroup(header.group_name, with_offsets, now_ms))
        return request.reply()

    @by_leader(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, rights=SIGNED)
    def all_groups(self, request: Command, _: Connection) -> Awaitable[Command]:
        """The settings of every group that who asks may see."""
        groups, sight = self._core.machine.groups, self._core.guard.sight()
        table = {config.group_name: config for config in groups}
        return self._configs(request, sight.groups(table), groups.version)

    async def _configs(
        self,
        request: Command,
        seen: Generator[None, None, dict[str, bodies.SubscriptionGroupConfig]],
        version: bodies.DataVersion,
    ) -> Command:
        wrapper = bodies.SubscriptionGroupWrapper(await result_in_turns(seen), version)
        return request.reply(body=await encode_in_turns(wrapper))

    @by_leader(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, rights=group(GET))
    def group_config(self, request: Command, _: Connection) -> Command:
        """The settings of one group."""
        name = decode_header(headers.GetSubscriptiongroupConfigHeader, request).group
        config = self._core.machine.groups.get(name)
        if config is None:
            raise no_group(name)
        return request.reply(body=encode_body(config))

    @by_leader(RequestCode.GET_CONSUMER_CONNECTION_LIST, rights=group(GET, at="consumerGroup"))
    def consumers(self, request: Command, _: Connection) -> Command:
        """The consumers of a group that are connected."""
        name = decode_header(headers.GetConsumerConnectionListHeader, request).consumer_group
        group = self._membership.consumers(name)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"no consumer of {name!r} is connected here"
            )
        answer = bodies.ConsumerConnection(
            connection_set=_connections(group.members.values()),
            subscription_table=dict(group.subscriptions),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
            differing=self._membership.differing(name, self._core.clock_s()) or None,
        )
        return request.reply(body=encode_body(answer))

    @by_leader(RequestCode.GET_PRODUCER_CONNECTION_LIST, rights=cluster(GET))
    def producers(self, request: Command, _: Connection) -> Command:
        """The producers of a group that are connected."""
        name = decode_header(headers.GetProducerConnectionListHeader, request).producer_group
        members = self._membership.producers(name)
        if not members:
            raise system_error(f"no producer of {name!r} is connected here")
        answer = bodies.ProducerConnection(_connections(members.values()))
        return request.reply(body=encode_body(answer))

    @by_leader(RequestCode.GET_ALL_PRODUCER_INFO, rights=cluster(GET))
    async def all_producers(self, request: Command, _: Connection) -> Command:
        """All producers that are connected, by group."""
        table = await result_in_turns(self._producer_steps())
        return request.reply(body=await encode_in_turns(bodies.ProducerTableInfo(table)))

    def _producer_steps(self) -> Generator[None, None, dict[str, list[bodies.ProducerInfo]]]:
        """The producers by group, one group at each step. Refused if they are too many."""
        core, membership = self._core, self._membership
        table: dict[str, list[bodies.ProducerInfo]] = {}
        now_ms, now_s = core.clock_ms(), core.clock_s()

        def info(connection_id: int, client: Client) -> bodies.ProducerInfo:
            seen_ms = now_ms - round(1000 * (now_s - membership.last_seen_s(connection_id)))
            return bodies.ProducerInfo(
                client.client_id, client.address, client.language, client.version, seen_ms
            )

        count = 0
        for name in [name for name, _ in membership.producer_groups()]:
            members = membership.producers(name)
            count += len(members)
            if count > limits.PRODUCERS_SHOWN_MAX:
                raise system_error(
                    f"there are more than {limits.PRODUCERS_SHOWN_MAX} producers, by group: ask "
                    "for one group at a time (mqadmin producerConnection)"
                )
            table[name] = [info(*member) for member in members.items()]
            yield
        return table

    @by_leader(RequestCode.QUERY_TOPICS_BY_CONSUMER, rights=group(GET))
    def topics_of_group(self, request: Command, _: Connection) -> Command:
        """The topics that a group has offsets for."""
        group = decode_header(headers.QueryTopicsByConsumerHeader, request).group
        topics = sorted(self._core.machine.offsets.topics_of(group))
        return request.reply(body=encode_body(bodies.TopicList(topics)))

    @by_leader(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, rights=group(GET) & topic(GET))
    def subscription(self, request: Command, _: Connection) -> Command:
        """A group's subscription to a topic."""
        header = decode_header(headers.QuerySubscriptionByConsumerHeader, request)
        group = self._membership.consumers(header.group)
        subscription = group.subscriptions.get(header.topic) if group is not None else None
        answer = bodies.QuerySubscriptionResponseBody(header.group, header.topic, subscription)
        return request.reply(body=encode_body(answer))

    @by_leader(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, rights=topic(GET))
    def groups_of_topic(self, request: Command, _: Connection) -> Command:
        """The groups that subscribe to a topic now, or have offsets in it."""
        topic = decode_header(headers.QueryTopicConsumeByWhoHeader, request).topic
        groups = set(self._core.machine.offsets.groups_of(topic))
        groups |= {
            name
            for name, group in self._membership.consumer_groups()
            if topic in group.subscriptions
        }
        return request.reply(body=encode_body(bodies.GroupList(sorted(groups))))


def _connections(clients: Iterable[Client]) -> list[bodies.ClientConnection]:
    return [
        bodies.ClientConnection(client.client_id, client.address, client.language, client.version)
        for client in clients
    ]
