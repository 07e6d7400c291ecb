"""Retries of messages that a consumer could not handle: when they come, and when they end. Pure."""

from __future__ import annotations

from dledger.remoting.bodies import SubscriptionGroupConfig
from mqbroker.state.topics import dead_letter_topic, retry_topic


def retry_destination(
    group: SubscriptionGroupConfig, reconsume_times: int, times_max: int | None
) -> str:
    """The topic for a message that was delivered `reconsume_times` + 1 times.

    `times_max` is the consumer's own limit, if it has one; else the group's holds.
    """
    limit = group.retry_max_times if times_max is None or times_max < 0 else times_max
    if reconsume_times >= limit:
        return dead_letter_topic(group.group_name)
    return retry_topic(group.group_name)
