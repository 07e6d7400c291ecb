"""The smallest policies that would have let everything pass that was observed. Pure.

A need is met by one of several actions. Needs that leave no choice come first; one with a choice
that an action given already meets adds nothing, else it adds its usual action. Resources are named
whole: whether a prefix would do is for people to judge.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dledger.remoting.bodies.access import ObservedNeed


class Suggestion(msgspec.Struct, frozen=True):
    """An entry to be granted, and how many requests would have been refused without it."""

    user: str
    resource: str
    actions: tuple[str, ...]
    requests: int


class Stranger(msgspec.Struct, frozen=True):
    """An address that sends what is refused whatever is granted: unsigned, by a user who is not
    there, with a wrong password. `user` is who it claims to be, `reason` the last one."""

    source: str
    user: str
    requests: int
    reason: str


def strangers(observed: Iterable[ObservedNeed]) -> list[Stranger]:
    """Senders that no entry helps, by address and claimed name."""
    found: dict[tuple[str, str], Stranger] = {}
    for each in observed:
        if each.source:
            key = each.source, each.claimed
            before = found[key].requests if key in found else 0
            found[key] = Stranger(*key, before + each.count, each.reason)
    return [found[key] for key in sorted(found)]


def suggested(observed: Iterable[ObservedNeed]) -> list[Suggestion]:
    """Entries for what users lacked, by user and resource. Senders without a name are left out."""
    actions: dict[tuple[str, str], dict[str, None]] = {}
    counts: dict[tuple[str, str], int] = {}
    named = (need for need in observed if need.user)
    for need in sorted(named, key=lambda need: (len(need.actions), need.actions)):
        key = need.user, f"{need.kind}:{need.name}"
        given = actions.setdefault(key, {})
        if given.keys().isdisjoint(need.actions):
            given[need.actions[0]] = None
        counts[key] = counts.get(key, 0) + need.count
    return [
        Suggestion(user, resource, tuple(sorted(given)), counts[user, resource])
        for (user, resource), given in sorted(actions.items())
    ]
