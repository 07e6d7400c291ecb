"""Filters: which messages of a topic a consumer wants. Pure.

By tags: the queue's units hold a 32-bit hash of each message's tag, so nothing else is read; a few
messages too many get through and never one too few, and consumers compare the tags themselves. By
SQL92 (`broker.sql`): the messages' properties are read, and what gets through is exact, for
consumers don't look again. None stands for "all".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from broker import limits
from broker.refusal import Refused
from broker.sql import Condition, parse_condition
from broker.state.units import Units
from dledger.errors import BadInput
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.message import properties_decode, tags_code
from dledger.remoting.record import Record

#: The tags codes that pass, a condition over properties, or None if all do.
MessageFilter: TypeAlias = "frozenset[int] | Condition | None"
#: Bytes of the log: position and size -> view.
View: TypeAlias = "Callable[[int, int], memoryview]"


class Selection(NamedTuple):
    """A filter at work: `wanted` gives the indices of units that pass, out of some of a queue.

    For one pull no more than `units_max` are looked at.
    """

    wanted: Callable[[Units], npt.NDArray[np.intp]]
    units_max: int


def parse_subscription(expression: str | None, expression_type: str | None) -> MessageFilter:
    """The filter of an expression, such as ``TagA || TagB``. Refused if it is none."""
    match (expression_type or "TAG").upper():
        case "TAG":
            return _by_tags(expression)
        case "SQL92":
            return _by_sql(expression or "")
    raise Refused(
        ResponseCode.SYSTEM_ERROR,
        f"this broker filters by TAG and SQL92; {expression_type!r} is not supported",
    )


def filter_of(subscription: SubscriptionData) -> MessageFilter:
    """The filter of a subscription that a heartbeat brought. Refused if it is none."""
    if not subscription.code_set:
        return parse_subscription(subscription.sub_string, subscription.expression_type)
    return _of_codes(subscription.code_set)


def selection(wanted: MessageFilter, view: View) -> Selection | None:
    """A filter at work; None if all pass."""
    if wanted is None:
        return None
    if isinstance(wanted, frozenset):
        codes = list(wanted)
        return Selection(
            lambda units: np.flatnonzero(np.isin(units["tags_code"], codes)),
            limits.PULL_UNITS_SCANNED_MAX,
        )
    condition = wanted

    def passing(units: Units) -> npt.NDArray[np.intp]:
        places = zip(units["position"].tolist(), units["size"].tolist(), strict=True)
        records = (Record(view(position, size)) for position, size in places)
        passes = [condition(_properties(record)) is True for record in records]
        return np.flatnonzero(passes)

    return Selection(passing, limits.SQL_MESSAGES_SCANNED_MAX)


def _by_tags(expression: str | None) -> MessageFilter:
    if expression is None or expression.strip() in ("", "*"):
        return None
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription {expression!r} names no tag; expected `*` or `TagA || TagB`",
        )
    return _of_codes(tags_code(tag) for tag in tags)


@lru_cache(maxsize=limits.SQL_EXPRESSIONS_KEPT)
def _by_sql(expression: str) -> Condition:
    """Compiled once, for it comes with every pull."""
    try:
        return parse_condition(expression)
    except BadInput as error:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the SQL92 expression {expression[:200]!r} can't be read: {error}",
        ) from error


def _properties(record: Record) -> Mapping[str, str]:
    """A message's properties; none if its producer wrote what can't be read."""
    try:
        return properties_decode(record.properties)
    except BadInput:
        return {}


def _of_codes(codes: Iterable[int]) -> MessageFilter:
    distinct = frozenset(codes)
    if len(distinct) > limits.SUBSCRIPTION_TAGS_MAX:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription names {len(distinct)} tags; at most "
            f"{limits.SUBSCRIPTION_TAGS_MAX} are taken",
        )
    return distinct
