"""Changes of topics and groups by operators, and the messages that would become unreachable. Pure.

Stock tools send whole configs, so what their user does not name is set to their default. Our tools
say in `changes` which fields their user named; the others stay as they are then.

Messages in a queue above a topic's read queues are kept, but no consumer gets them. A change that
would do that to messages that are there, or to those sent from now on, needs `force`.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TypeVar

import msgspec

from dledger.remoting.bodies import SubscriptionGroupConfig, TopicConfig
from mqbroker import limits
from mqbroker.refusal import system_error

Config = TypeVar("Config", TopicConfig, SubscriptionGroupConfig)


def check_rows(field: str, rows: Sized) -> None:
    """Refused for more configs in one request than are changed in one turn of the loop."""
    if len(rows) > limits.CONFIGS_PER_REQUEST_MAX:
        raise system_error(
            f"{field} has {len(rows)} rows; a request may have {limits.CONFIGS_PER_REQUEST_MAX}: "
            "send them in several. Nothing is changed"
        )


def named_only(known: Config | None, given: Config, changes: str | None) -> Config:
    """The config after a change of the fields in `changes`, by their names on the wire.

    All of them are changed if it is None; `known` is None for what does not exist as yet. The
    attributes of `given` say themselves what they change. Refused for a name that no field has.
    """
    if changes is None:
        return given
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(given)}
    names = [name for name in changes.split(",") if name]
    if unknown := [name for name in names if name not in fields]:
        raise system_error(f"changes: {unknown[0][:80]!r} is not a setting")
    if known is None:
        return given
    changed = {fields[name]: getattr(given, fields[name]) for name in names}
    return msgspec.structs.replace(known, **changed, attributes=given.attributes)


def out_of_reach(
    known: TopicConfig | None, config: TopicConfig, ends: Callable[[int], tuple[int, int]]
) -> str | None:
    """The messages that no consumer could get after a change; None if it makes none unreachable.

    `ends` gives a queue's first offset, and the one that its next message will have.
    """
    queues_before = 0 if known is None else known.read_queue_nums
    lost = {
        queue_id: end - begin
        for queue_id in range(config.read_queue_nums, queues_before)
        for begin, end in [ends(queue_id)]
        if end > begin
    }
    if lost:
        return (
            f"{sum(lost.values())} messages in {_queues(min(lost), max(lost))} of "
            f"{config.topic_name!r}, which has {queues_before} read queues and would have "
            f"{config.read_queue_nums}"
        )
    unread = config.write_queue_nums > config.read_queue_nums
    before = None if known is None else (known.read_queue_nums, known.write_queue_nums)
    if unread and before != (config.read_queue_nums, config.write_queue_nums):
        return (
            f"messages sent to {_queues(config.read_queue_nums, config.write_queue_nums - 1)} of "
            f"{config.topic_name!r}, which would have {config.write_queue_nums} write queues and "
            f"{config.read_queue_nums} read queues"
        )
    return None


def _queues(first: int, last: int) -> str:
    return f"queue {first}" if first == last else f"queues {first} to {last}"
