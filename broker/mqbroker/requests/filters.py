"""Filters: which messages of a topic a consumer wants. Pure.

By tags: the queue's units hold a 32-bit hash of each message's tag, and only these are read. So
some messages too many may pass but none too few, and consumers compare the tags themselves. By
SQL92 (`mqbroker.sql`): the messages' properties are read, and the filter is exact, since consumers
don't check again. None stands for "all".

A filter's work for one pull is bounded in steps of about a microsecond. A pull whose steps are used
up ends there, like one that has read too many messages: its answer has the offset to go on from.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dledger import limits as foundation
from dledger.errors import BadInput
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.message import properties_decode, tags_code
from dledger.remoting.record import Record
from mqbroker import limits
from mqbroker.refusal import Refused, system_error
from mqbroker.sql import Filter, parse_condition
from mqbroker.state.derived.units import Units

#: The tags codes that pass, a condition over properties, or None if all do.
MessageFilter: TypeAlias = "frozenset[int] | Filter | None"
#: Bytes of the log: position and size -> view.
View: TypeAlias = "Callable[[int, int], memoryview]"


class Chosen(NamedTuple):
    """The indices of units that pass, how many were checked from the first on, and the steps."""

    numbers: npt.NDArray[np.intp]
    scanned: int
    steps: int


class Selection(NamedTuple):
    """A filter of pulls: given some units of a queue, and how many steps there are, `wanted`
    chooses.

    For one pull no more than `units_max` are checked.
    """

    wanted: Callable[[Units, int], Chosen]
    units_max: int


def parse_subscription(expression: str | None, expression_type: str | None) -> MessageFilter:
    """The filter of an expression, such as ``TagA || TagB``. Refused if it is no valid one."""
    match (expression_type or "TAG").upper():
        case "TAG":
            return _by_tags(expression)
        case "SQL92":
            return _by_sql(expression or "")
    raise system_error(
        f"this broker filters by TAG and SQL92; {expression_type!r} is not supported"
    )


def filter_of(subscription: SubscriptionData) -> MessageFilter:
    """The filter of a subscription in a heartbeat. Refused if it is no valid one."""
    if not subscription.code_set:
        return parse_subscription(subscription.sub_string, subscription.expression_type)
    return _of_codes(subscription.code_set)


def selection(wanted: MessageFilter, view: View) -> Selection | None:
    """A filter for one pull; None if all messages pass."""
    if wanted is None:
        return None
    if isinstance(wanted, frozenset):
        codes = np.array(sorted(wanted), np.int64)
        return Selection(partial(_with_tags, codes), limits.PULL_UNITS_SCANNED_MAX)
    return Selection(partial(_that_meet, wanted, view), limits.SQL_MESSAGES_SCANNED_MAX)


def _with_tags(codes: npt.NDArray[np.int64], units: Units, steps_max: int) -> Chosen:
    units = units[: steps_max * limits.TAG_UNITS_PER_STEP]
    steps = limits.SELECTION_STEPS + len(units) // limits.TAG_UNITS_PER_STEP
    if not len(codes):
        return Chosen(np.empty(0, np.intp), len(units), steps)
    tags_codes = units["tags_code"].astype(np.int64)
    places = np.searchsorted(codes, tags_codes)
    places[places == len(codes)] = 0
    return Chosen(np.flatnonzero(codes[places] == tags_codes), len(units), steps)


def _that_meet(wanted: Filter, view: View, units: Units, steps_max: int) -> Chosen:
    passes: list[bool] = []
    steps = limits.SELECTION_STEPS
    for position, size in zip(units["position"].tolist(), units["size"].tolist(), strict=True):
        if steps > steps_max:
            break
        record = Record(view(position, size))
        steps += _steps(wanted, len(record.properties))
        passes.append(wanted(_properties(record)) is True)
    return Chosen(np.flatnonzero(passes), len(passes), steps)


def _steps(wanted: Filter, properties_bytes: int) -> int:
    """The cost of checking one message, in steps."""
    return (
        limits.SQL_STEPS_PER_MESSAGE
        + wanted.operations
        + properties_bytes // limits.SQL_PROPERTIES_BYTES_PER_STEP
        + wanted.searches * properties_bytes // limits.SQL_SEARCHED_BYTES_PER_STEP
    )


def _by_tags(expression: str | None) -> MessageFilter:
    if expression is None or expression.strip() in ("", "*"):
        return None
    if len(expression) > foundation.SUBSCRIPTION_CHARACTERS_MAX:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"a subscription of {len(expression)} characters; at most "
            f"{foundation.SUBSCRIPTION_CHARACTERS_MAX} are read",
        )
    tags = [tag.strip() for tag in expression.split("||")]
    tags = [tag for tag in tags if tag]
    if not tags:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription {expression!r} names no tag; expected `*` or `TagA || TagB`",
        )
    return _of_codes(tags_code(tag) for tag in tags)


class CompiledFilters:
    """Keeps compiled expressions, since they come with every pull; the least recently used are
    dropped."""

    def __init__(self) -> None:
        self._filters: OrderedDict[str, Filter] = OrderedDict()
        self.characters = 0

    def get(self, expression: str) -> Filter:
        """The filter of an SQL expression, compiled now or kept from before. Raises BadInput."""
        found = self._filters.get(expression)
        if found is not None:
            self._filters.move_to_end(expression)
            return found
        found = parse_condition(expression)
        self._filters[expression] = found
        self.characters += len(expression)
        while self.characters > limits.SQL_CHARACTERS_KEPT:
            self.characters -= len(self._filters.popitem(last=False)[0])
        return found


_compiled = CompiledFilters()


def _by_sql(expression: str) -> Filter:
    try:
        return _compiled.get(expression)
    except BadInput as error:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the SQL92 expression {expression[:200]!r} can't be read: {error}",
        ) from error


def _properties(record: Record) -> Mapping[str, str]:
    """A message's properties; none if they can't be read."""
    try:
        return properties_decode(record.properties)
    except BadInput:
        return {}


def _of_codes(codes: Iterable[int]) -> MessageFilter:
    distinct = frozenset(codes)
    if len(distinct) > foundation.SUBSCRIPTION_TAGS_MAX:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription names {len(distinct)} tags; at most "
            f"{foundation.SUBSCRIPTION_TAGS_MAX} are taken",
        )
    return distinct
