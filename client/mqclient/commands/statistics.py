"""statsAll: what comes into topics and what groups take out of them; listRates: how fast they may;
stats: a server's last hour."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from mqclient.admin.results import ServerHistory
from mqclient.commands.terminal.curves import Curve, curves
from mqclient.commands.terminal.options import DEFAULTS, AskedCluster, Common, OneTopic
from mqclient.commands.terminal.output import Table, plural


def stats_all(
    *,
    active: Annotated[
        bool, Parameter(name=["--active", "-a", "--activeTopic"], negative=())
    ] = False,
    topic: OneTopic = None,
    common: Common = DEFAULTS,
) -> None:
    """Show messages in and out, and the lag, of each topic and each consumer group that reads it.

    The figures are of the last minute and of the last day. A broker group that can't be asked is
    named, and the exit status is 1.

    For example:

        mqadmin statsAll
        mqadmin statsAll -t Orders

    Parameters
    ----------
    active
        Only topics that got messages in the last 24 hours.
    """
    found = common.ask(lambda admin: admin.statistics.traffic(topic, partly=True))
    shown = [row for row in found if row.in_24_h or not active]
    headers = ("TOPIC", "GROUP", "LAG", "IN/S", "OUT/S", "IN 24 H", "OUT 24 H")
    rows = [
        (row.topic, row.group, row.lag, row.in_per_s, row.out_per_s, row.in_24_h, row.out_24_h)
        for row in shown
    ]
    common.show("statsAll", shown, Table(headers, rows, [] if rows else ["no topics"]))
    common.end()


def list_rates(*, common: Common = DEFAULTS) -> None:
    """Show the rates that are set for topics and groups, and how often they held requests back.

    updateTopic -a +send.rate.messages=N,+send.rate.bytes=N sets a topic's rate on each broker
    group. updateSubGroup --attributes +consume.rate.messages=N,+consume.rate.bytes=N sets a
    consumer group's rate. docs/reference/broker.md, Flow control, explains both. A broker group
    that can't be asked is named, and the exit status is 1.

    For example:

        mqadmin listRates -n 127.0.0.1:9876
    """
    rates = common.ask(lambda admin: admin.statistics.rates(partly=True))
    headers = (
        *("BROKER", "KIND", "NAME", "MESSAGES/S", "BYTES/S"),
        *("HELD BACK 1 MIN", "HELD BACK 24 H"),
    )
    rows = [
        (
            each.broker_name,
            each.kind,
            each.name,
            each.messages_per_s or "",
            each.bytes_per_s or "",
            each.held_back_1_min,
            each.held_back_24_h,
        )
        for each in rates
    ]
    common.show("listRates", rates, Table(headers, rows, [] if rows else ["no rates are set"]))
    common.end()


def stats(
    *,
    server: Annotated[str | None, Parameter(name=["--server", "--broker", "-b"])] = None,
    cluster: AskedCluster = None,
    figure: Annotated[tuple[str, ...], Parameter(name=["--figure", "-f"])] = (),
    minutes: Annotated[float, Parameter(validator=Number(gt=0))] = 60.0,
    common: Common = DEFAULTS,
) -> None:
    """Show figures of a server's last hour, each as a curve: it keeps them itself.

    Figures that were 0 all the time are left out, unless they are named. docs/reference/metrics.md
    has the list.

    For example:

        mqadmin stats -n 127.0.0.1:9876
        mqadmin stats -b 127.0.0.1:10911 -f messages -f lag --minutes 10

    Parameters
    ----------
    server
        A broker or name server by its address, or the leader of a broker name.
    figure
        Only figures whose names contain this; may be given more than once.
    minutes
        Only so much of the hour.
    """
    found = common.ask(lambda admin: admin.statistics.history(server, cluster=cluster))
    headers = ("FIGURE", "LEAST", "MOST", "LAST", "")
    rows, notes = [], []
    for history in found:
        shown = _chosen(curves(history, minutes * 60), figure)
        rows += [(each.name, each.least, each.most, each.last, each.drawn) for each in shown]
        notes.append(_span(history))
    common.show("stats", found, Table(headers, rows, notes))


def _chosen(found: list[Curve], parts: tuple[str, ...]) -> list[Curve]:
    if parts:
        return [each for each in found if any(part in each.name for part in parts)]
    return [each for each in found if not each.is_zero]


def _span(history: ServerHistory) -> str:
    if not history.rows:
        return f"{history.address} has kept nothing yet"
    span_s = (history.times_ms[-1] - history.times_ms[0]) / 1000
    return f"{history.address}: {plural(len(history.rows), 'row')} of {span_s / 60:.0f} minutes"
