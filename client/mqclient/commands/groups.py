"""consumerProgress, updateSubGroup, deleteSubGroup, setConsumeMode, and dead letters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from dledger.program.whole import Whole
from dledger.remoting.bodies import SubscriptionGroupConfig
from mqclient import limits
from mqclient.admin import Admin
from mqclient.admin.results import DeadLetter, GroupProgress
from mqclient.commands.terminal.options import (
    DEFAULTS,
    EXIT_PARTLY,
    ChangedBroker,
    ChangedCluster,
    Common,
    Group,
    OneTopic,
    Switch,
    Topic,
    switched,
)
from mqclient.commands.terminal.output import Table, first_of, joined, moment, plural

LetterCount = Annotated[Whole, Parameter(name="--count", validator=Number(gte=1))]


def consumer_progress(
    *,
    group: Annotated[str | None, Parameter(name=["--group", "-g", "--groupName"])] = None,
    topic: OneTopic = None,
    common: Common = DEFAULTS,
) -> None:
    """Show a consumer group's offset and lag in each queue; without -g, list all groups.

    A broker group that can't be asked is named, and the exit status is 1.

    For example:

        mqadmin consumerProgress -n 127.0.0.1:9876
        mqadmin consumerProgress -g readers -n 127.0.0.1:9876

    Parameters
    ----------
    group
        Name of the consumer group.
    """
    if group is None:
        groups = common.ask(lambda admin: admin.groups.list(partly=True))
        common.show("consumerProgress", groups, _summary(groups))
    else:
        groups = (common.ask(lambda admin: admin.groups.progress(group, topic, partly=True)),)
        common.show("consumerProgress", groups[0], _queues(groups[0]))
    if any(each.unasked for each in groups):
        sys.exit(EXIT_PARTLY)


def update_sub_group(
    *,
    group: Group,
    cluster: ChangedCluster = None,
    broker: ChangedBroker = None,
    consume: Annotated[
        Switch | None, Parameter(name=["--consume", "-s", "--consumeEnable"])
    ] = None,
    from_min: Annotated[
        Switch | None, Parameter(name=["--from-min", "-m", "--consumeFromMinEnable"])
    ] = None,
    broadcast: Annotated[
        Switch | None, Parameter(name=["--broadcast", "-d", "--consumeBroadcastEnable"])
    ] = None,
    retry_queues: Annotated[
        Whole | None,
        Parameter(name=["--retry-queues", "-q", "--retryQueueNums"], validator=Number(gte=0)),
    ] = None,
    retries: Annotated[
        Whole | None,
        Parameter(name=["--retries", "-r", "--retryMaxTimes"], validator=Number(gte=0)),
    ] = None,
    notify: Annotated[
        Switch | None, Parameter(name=["--notify", "-a", "--notifyConsumerIdsChanged"])
    ] = None,
    attributes: Annotated[
        str | None, Parameter(name="--attributes", allow_leading_hyphen=True)
    ] = None,
    common: Common = DEFAULTS,
) -> None:
    """Create a consumer group or change it. Settings that you don't name stay as they are.

    For example:

        mqadmin updateSubGroup -g readers -r 5 -c DefaultCluster -n 127.0.0.1:9876

    Parameters
    ----------
    consume
        With false, nobody can consume for the group.
    from_min
        Whether it may begin at the oldest message.
    broadcast
        Whether it may broadcast.
    retry_queues
        Queues of its retry topic; with 0, messages sent back are dropped.
    retries
        How often a message is tried again before it becomes a dead letter.
    notify
        Whether members are told at once when others come and go.
    attributes
        Attributes to set or remove, such as +consume.rate.messages=1000,-consume.rate.bytes.
    """

    async def update(admin: Admin) -> tuple[SubscriptionGroupConfig, tuple[str, ...]]:
        names = await admin.groups.update(
            group,
            cluster=cluster,
            broker=broker,
            attributes=attributes,
            consume_enable=switched(consume),
            consume_from_min_enable=switched(from_min),
            consume_broadcast_enable=switched(broadcast),
            retry_queue_nums=retry_queues,
            retry_max_times=retries,
            notify_consumer_ids_changed_enable=switched(notify),
        )
        return await admin.groups.config(group) or SubscriptionGroupConfig(group), names

    config, names = common.ask(update)
    rows = list(msgspec.to_builtins(config).items())
    note = f"group {group} is on {joined(names)}"
    result = {"group": group, "brokers": names, "config": config}
    common.show("updateSubGroup", result, Table(("KEY", "VALUE"), rows, [note]))


def delete_sub_group(
    *,
    group: Group,
    cluster: ChangedCluster = None,
    broker: ChangedBroker = None,
    remove_offsets: Annotated[
        Switch, Parameter(name=["--remove-offsets", "-r", "--removeOffset"])
    ] = "false",
    common: Common = DEFAULTS,
) -> None:
    """Delete a consumer group; on a whole cluster also its retry and dead-letter topics.

    Status 1 if the group does not exist.

    For example:

        mqadmin deleteSubGroup -g readers -r true -c DefaultCluster

    Parameters
    ----------
    remove_offsets
        With true, also how far the group was in its topics.
    """
    names = common.ask(
        lambda admin: admin.groups.delete(
            group, cluster=cluster, broker=broker, remove_offsets=remove_offsets == "true"
        )
    )
    result = {"group": group, "brokers": names}
    common.say("deleteSubGroup", result, f"group {group} is deleted on {joined(names)}")


def set_consume_mode(
    *,
    topic: Topic,
    group: Group,
    mode: Annotated[Literal["PULL", "POP"], Parameter(name=["--mode", "-m"])],
    share: Annotated[Whole | None, Parameter(name=["--share", "-q", "--popShareQueueNum"])] = None,
    cluster: ChangedCluster = None,
    broker: ChangedBroker = None,
    common: Common = DEFAULTS,
) -> None:
    """Set how members whose queues are shared out by brokers read a topic: by pull or by POP.

    For example:

        mqadmin setConsumeMode -t Orders -g readers -m POP -n 127.0.0.1:9876

    Parameters
    ----------
    mode
        PULL: each queue is one member's. POP: messages are handed out one by one.
    share
        With POP: a member pops its own queues and the queues of this many others; 0, the default,
        is for all.
    """
    names = common.ask(
        lambda admin: admin.groups.set_request_mode(
            group, topic, mode, share=share, cluster=cluster, broker=broker
        )
    )
    how = "pull" if mode == "PULL" else "pop"
    result = {"group": group, "topic": topic, "mode": mode, "share": share, "brokers": names}
    said = f"members of {group} {how} {topic} on {joined(names)} from their next rebalance on"
    common.say("setConsumeMode", result, said)


def dead_letters(
    *,
    group: Group,
    redriven: Annotated[bool, Parameter(name=["--redriven", "-r"], negative=())] = False,
    count: LetterCount = limits.DEAD_LETTERS_AT_ONCE,
    common: Common = DEFAULTS,
) -> None:
    """List the dead letters of a consumer group.

    For example:

        mqadmin deadLetters -g readers -n 127.0.0.1:9876

    Parameters
    ----------
    redriven
        Also show dead letters that were redelivered already.
    """
    every = common.ask(
        lambda admin: admin.dead_letters.list(group, redriven=redriven, count=count + 1)
    )
    found, left_out = first_of(every, count, "--count")
    note = f"{plural(len(found), 'dead letter')} of group {group}"
    common.show("deadLetters", found, _letters(found, note, left_out))


def redrive_dead_letters(
    *,
    group: Group,
    message_id: Annotated[str | None, Parameter(name=["--msgId", "-i"])] = None,
    dry_run: Annotated[bool, Parameter(name="--dry-run", negative=())] = False,
    count: LetterCount = limits.DEAD_LETTERS_AT_ONCE,
    common: Common = DEFAULTS,
) -> None:
    """Redeliver the dead letters of a consumer group to their topics, each once.

    A dead letter that can't be sent is reported (status 1), and the next call tries it again. It
    stops no other.

    For example:

        mqadmin redriveDeadLetters -g readers --dry-run -n 127.0.0.1:9876
        mqadmin redriveDeadLetters -g readers -n 127.0.0.1:9876

    Parameters
    ----------
    message_id
        Only the one with this offset message id, even if it was sent again before.
    dry_run
        Only show which they would be.
    """
    found = common.ask(
        lambda admin: admin.dead_letters.redrive(
            group, message_id=message_id, dry_run=dry_run, count=count
        )
    )
    unsent = [letter for letter in found if letter.problem]
    what = "would be sent again" if dry_run else "sent again"
    note = f"{plural(len(found) - len(unsent), 'dead letter')} of group {group} {what}"
    left_out = [f"not sent: {each.offset_message_id}: {each.problem}" for each in unsent]
    if len(found) >= count and message_id is None:
        left_out.append(f"{count} were tried, there may be more: --count, or the same again")
    common.show("redriveDeadLetters", found, _letters(found, note, left_out))
    if unsent:
        sys.exit(EXIT_PARTLY)


def _letters(letters: Sequence[DeadLetter], note: str, left_out: Sequence[str]) -> Table:
    headers = ("TO TOPIC", "GIVEN UP", "TRIES", "KEYS", "OFFSET MESSAGE ID", "SENT AS", "BODY")
    rows = [
        (
            each.origin_topic,
            moment(each.store_timestamp_ms),
            each.reconsume_times,
            each.keys,
            each.offset_message_id,
            each.redriven_as,
            each.text,  # the last, since others would be padded to the longest body
        )
        for each in letters
    ]
    return Table(headers, rows, [note], left_out)


def _summary(groups: tuple[GroupProgress, ...]) -> Table:
    headers = ("GROUP", "MEMBERS", "TYPE", "MODEL", "CONSUMED/S", "LAG")
    rows = [
        (g.group, g.members, g.consume_type, g.message_model, g.consumed_per_s, g.lag)
        for g in groups
    ]
    return Table(headers, rows, [] if rows else ["no consumer group has had a member"])


def _queues(progress: GroupProgress) -> Table:
    headers = (
        *("TOPIC", "BROKER", "QUEUE", "BROKER OFFSET", "CONSUMER OFFSET", "LAG"),
        *("IN HAND", "LAST CONSUMED", "STATE"),
    )
    rows = [
        (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            queue.broker_offset,
            queue.consumer_offset,
            queue.lag,
            queue.in_flight,
            moment(queue.last_consumed_ms),
            queue.state,
        )
        for queue in progress.queues
    ]
    note = (
        f"group {progress.group}: {plural(progress.members, 'member')} connected, "
        f"lag {progress.lag}, {progress.consumed_per_s:.2f} messages/s"
    )
    if progress.lag:
        note += f"; {_catches_up(progress)}"
    reasons = [
        f"{queue.topic} {queue.broker_name} {queue.queue_id}: {queue.reason}"
        + (f", since {moment(queue.since_ms)}" if queue.since_ms else "")
        for queue in progress.queues
        if queue.lag and queue.reason
    ]
    shown, more = first_of(reasons, limits.REASONS_SHOWN_MAX, "-o json")
    return Table(headers, rows, [note, *shown, *more])


def _catches_up(progress: GroupProgress) -> str:
    """When a lag will be gone, as far as the last minute tells."""
    if progress.caught_up_s is not None:
        return f"caught up in {progress.caught_up_s:.0f} s, if this minute's rates stay"
    if progress.unasked:
        return f"of {', '.join(progress.unasked)} nothing is known"
    if progress.produced_per_s is None:
        return "its brokers do not tell how fast messages come"
    return f"it does not catch up: {progress.produced_per_s:.2f} messages/s come"
