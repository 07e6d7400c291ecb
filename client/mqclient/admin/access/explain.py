"""Whether a user may do something, and by which entry: decided as a broker decides. Pure.

A broker asks for another right where a topic belongs to somebody: `%RETRY%g` to the group g,
`%DLQ%g` to that group as well, `%PARTS%t` to the topic t. Rights on a cluster count for its own
servers alone.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dledger.remoting.message import RETRY_PREFIX
from dledger.trust.policies import Policies
from dledger.trust.rights import Kind, Need, needs_of


@dataclass(frozen=True, slots=True)
class Known:
    """The facts of a broker group on which rights depend."""

    cluster: str
    groups: Collection[str] = ()

    def has_topic(self, _: str) -> bool:
        """Only requests that make or change a topic depend on it."""
        return False

    def has_group(self, group: str) -> bool:
        """Whether a consumer group exists."""
        return group in self.groups

    def topic_at(self, _: int) -> None:
        """Only requests that name a message by its position depend on it."""


def depends_on_groups(need: Need) -> bool:
    """Whether the consumer groups that exist say to which of them a retry topic belongs."""
    return need.kind is Kind.TOPIC and need.name.startswith(RETRY_PREFIX)


def explained(policies: Policies, need: Need, source: str, known: Known) -> tuple[bool, str]:
    """Whether a user's policies meet a need, and by which entry, or what would be needed."""
    if need.kind is Kind.CLUSTER and need.name != known.cluster:
        return False, f"these brokers are of {known.cluster!r}: rights on others do not count here"
    wanted = list(needs_of(need, known))
    if not wanted:
        return True, "every user may"
    denied: list[str] = []
    for alternatives in wanted:
        verdicts = [policies.judge(each, source) for each in alternatives]
        found = [verdict for verdict in verdicts if verdict.entry is not None]
        met = [verdict for verdict in found if verdict.allowed]
        if met:
            return True, str(met[0].entry)
        denied += [str(verdict.entry) for verdict in found]
    lacking = (
        f"{each.kind}:{each.name} with {' or '.join(each.actions)}"
        for alternatives in wanted
        for each in alternatives
    )
    return False, denied[0] if denied else f"no entry matches; {' or '.join(lacking)} would"
