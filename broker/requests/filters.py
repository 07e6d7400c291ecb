"""Tag filters: which messages of a topic a consumer wants, by the tags codes in the queue. Pure.

A code is a 32-bit hash, so a filter lets through a few messages too many and never one too few;
consumers compare the tags themselves. None stands for "all".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from broker import limits
from broker.refusal import Refused
from dledger.remoting.bodies import SubscriptionData
from dledger.remoting.codes import ResponseCode
from dledger.remoting.message import tags_code

#: The tags codes that pass, or None if all do.
TagFilter: TypeAlias = "frozenset[int] | None"


def parse_subscription(expression: str | None, expression_type: str | None) -> TagFilter:
    """The filter of an expression, such as ``TagA || TagB``. Refused if it is none."""
    if (expression_type or "TAG").upper() != "TAG":
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"this broker filters by TAG; {expression_type!r} is not supported",
        )
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


def filter_of(subscription: SubscriptionData) -> TagFilter:
    """The filter of a subscription that a heartbeat brought. Refused if it is none."""
    if not subscription.code_set:
        return parse_subscription(subscription.sub_string, subscription.expression_type)
    return _of_codes(subscription.code_set)


def _of_codes(codes: Iterable[int]) -> TagFilter:
    distinct = frozenset(codes)
    if len(distinct) > limits.SUBSCRIPTION_TAGS_MAX:
        raise Refused(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription names {len(distinct)} tags; at most "
            f"{limits.SUBSCRIPTION_TAGS_MAX} are taken",
        )
    return distinct
