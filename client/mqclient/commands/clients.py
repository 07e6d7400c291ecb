"""Commands of mqadmin about clients: consumerConnection, producerConnection, consumerStatus,
resetOffsetByTime."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from mqclient.admin.results import END, ClientInfo
from mqclient.commands.terminal.options import DEFAULTS, Common, Group, Switch, Topic
from mqclient.commands.terminal.output import Cell, Table, moment, plural
from mqclient.commands.terminal.times import parse_time

_HEADERS = ("CLIENT", "ADDRESS", "LANGUAGE", "VERSION")


def consumer_connection(*, group: Group, common: Common = DEFAULTS) -> None:
    """Show the members of a consumer group and their subscriptions.

    For example:

        mqadmin consumerConnection -g readers -n 127.0.0.1:9876
    """
    found = common.ask(lambda admin: admin.clients.consumers(group))
    notes = [
        f"group {group}: {found.consume_type}, {found.message_model}, {found.consume_from_where}",
        *(f"subscribes to {s.topic}: {s.expression}" for s in found.subscriptions),
    ]
    common.show("consumerConnection", found, Table(_HEADERS, _rows(found.clients), notes))


def producer_connection(
    *,
    group: Annotated[str, Parameter(name=["--group", "-g", "--producerGroup"])],
    topic: Topic,
    common: Common = DEFAULTS,
) -> None:
    """Show the producers of a group that are connected to the brokers of a topic.

    For example:

        mqadmin producerConnection -g shop -t Orders -n 127.0.0.1:9876

    Parameters
    ----------
    group
        Name of the producer group.
    """
    found = common.ask(lambda admin: admin.clients.producers(group, topic))
    notes = [f"group {group}: {plural(len(found.clients), 'producer')}"]
    common.show("producerConnection", found, Table(_HEADERS, _rows(found.clients), notes))


def consumer_status(
    *,
    group: Group,
    client: Annotated[str | None, Parameter(name=["--client", "-i", "--clientId"])] = None,
    stacks: Annotated[bool, Parameter(name=["--stacks", "-s", "--jstack"], negative=())] = False,
    common: Common = DEFAULTS,
) -> None:
    """Show what each member of a consumer group reports: its queues, its rate, its settings.

    For example:

        mqadmin consumerStatus -g readers -n 127.0.0.1:9876

    Parameters
    ----------
    client
        Only the one with this client id.
    stacks
        Ask for the stacks of its threads too.
    """
    found = common.ask(lambda admin: admin.clients.status(group, client, with_stacks=stacks))
    rows = [
        (status.client.client_id, family, name, _in_one(value))
        for status in found
        for family, values in sorted(status.running_info.items())
        for name, value in _pairs(values)
    ]
    notes = [f"{s.client.client_id}: no answer: {s.problem}" for s in found if s.problem]
    common.show("consumerStatus", found, Table(("CLIENT", "WHAT", "NAME", "VALUE"), rows, notes))


def reset_offset_by_time(
    *,
    group: Group,
    topic: Topic,
    time: Annotated[
        str, Parameter(name=["--time", "-s", "--timestamp"], allow_leading_hyphen=True)
    ],
    force: Annotated[Switch, Parameter(name=["--force", "-f"])] = "true",
    common: Common = DEFAULTS,
) -> None:
    """Reset a consumer group's offsets to the first message stored at or after a time.

    For example:

        mqadmin resetOffsetByTime -g readers -t Orders -s now -n 127.0.0.1:9876

    Parameters
    ----------
    time
        now, -1 (the end), milliseconds since 1970, or a time such as 2026-07-01#12:30:00:000 or
        2026-07-01T12:30:00+02:00; without a zone it is local.
    force
        With false, offsets are only moved back.
    """
    timestamp_ms = parse_time(time)
    found = common.ask(
        lambda admin: admin.groups.reset_offset(group, topic, timestamp_ms, force=force == "true")
    )
    rows = [(queue.broker_name, queue.queue_id, queue.offset) for queue in found]
    when = "now" if timestamp_ms == END else moment(timestamp_ms)
    notes = [f"group {group} goes on there in topic {topic}: from {when} on"]
    common.show("resetOffsetByTime", found, Table(("BROKER", "QUEUE", "OFFSET"), rows, notes))


def _rows(clients: tuple[ClientInfo, ...]) -> list[tuple[Cell, ...]]:
    return [(one.client_id, one.address, one.language, one.version) for one in clients]


def _pairs(values: object) -> list[tuple[str, object]]:
    if isinstance(values, dict):
        return sorted((str(name), value) for name, value in values.items())
    return [("", values)]


def _in_one(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={item}" for name, item in sorted(value.items()))
    return str(value)
