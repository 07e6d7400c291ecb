"""statsAll: what comes into topics and what groups take out of them; listRates: how fast they
may."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from mqclient.commands.terminal.options import DEFAULTS, Common, OneTopic
from mqclient.commands.terminal.output import Table


def stats_all(
    *,
    active: Annotated[
        bool, Parameter(name=["--active", "-a", "--activeTopic"], negative=())
    ] = False,
    topic: OneTopic = None,
    common: Common = DEFAULTS,
) -> None:
    """Show messages in and out, and the lag, of each topic and each consumer group that reads it.

    The figures are of the last minute and of the last day.

    Parameters
    ----------
    active
        Only topics that got messages in the last 24 hours.
    """
    found = common.ask(lambda admin: admin.statistics.traffic(topic))
    shown = [row for row in found if row.in_24_h or not active]
    headers = ("TOPIC", "GROUP", "LAG", "IN/S", "OUT/S", "IN 24 H", "OUT 24 H")
    rows = [
        (row.topic, row.group, row.lag, row.in_per_s, row.out_per_s, row.in_24_h, row.out_24_h)
        for row in shown
    ]
    common.show("statsAll", shown, Table(headers, rows, [] if rows else ["no topics"]))


def list_rates(*, common: Common = DEFAULTS) -> None:
    """Show the rates that are set for topics and groups, and how often they held requests back.

    updateTopic -a +send.rate.messages=N,+send.rate.bytes=N sets a topic's rate on each broker
    group. updateSubGroup --attributes +consume.rate.messages=N,+consume.rate.bytes=N sets a
    consumer group's rate. docs/reference/broker.md, Flow control, explains both.
    """
    rates = common.ask(lambda admin: admin.statistics.rates())
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
