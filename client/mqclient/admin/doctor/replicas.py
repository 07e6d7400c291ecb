"""The checks of a broker group's members: who leads, who is behind, who differs. Pure.

Each is a function from the facts to findings, and says nothing of what the facts do not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from mqclient import limits
from mqclient.admin.doctor.facts import (
    BrokerFacts,
    Facts,
    Finding,
    broker_groups,
    leader_of,
    number,
)

_ALIKE = ("dLegerGroup", "mappedFileSizeCommitLog", "messageDelayLevel", "flushDiskType")
"""Keys that must, or should, be the same on all members."""


def no_leader(facts: Facts) -> Iterator[Finding]:
    """Broker groups whose members answer, without a leader."""
    for name, members in broker_groups(facts):
        infos = [each.info for each in members if each.info is not None]
        if infos and leader_of(members) is None:
            yield Finding(
                "no-leader",
                name,
                f"{len(infos)} of {len(members)} members answer, and none of them leads: the group "
                "takes no messages and gives none",
                "start the members that are down; if all run, let them reach each other "
                "(mqadmin raftStatus)",
            )


def follower_behind(facts: Facts) -> Iterator[Finding]:
    """Members that lack much of the leader's log, are not connected, or do not count."""
    for _, members in broker_groups(facts):
        leader = leader_of(members)
        unreached = {} if leader is None else dict(leader.unreached)
        for broker in members:
            info = broker.info
            if info is None:
                continue
            lag = 0 if leader is None else leader.last_index - info.last_index
            if info.fenced:
                what = f"it takes no further part: {info.fenced}"
                remedy = "restart it: a start reads again what is on its disk"
            elif info.node_id in unreached:
                what = f"the leader can't connect to it: {unreached[info.node_id]}"
                remedy = "look at its process and the network between both"
            elif lag > limits.DOCTOR_LAG_ENTRIES:
                what = f"it lacks {lag} entries of the leader's log"
                remedy = (
                    "wait if the number falls (mqadmin raftStatus); if it grows, look at its disk"
                )
            elif not info.counted:
                what = "its copy is not complete yet, and counts for no majority"
                remedy = "wait until it has copied the log (mqadmin raftStatus)"
            else:
                continue
            yield Finding("follower-behind", broker.name, what, remedy)


def snapshot_old(facts: Facts) -> Iterator[Finding]:
    """Members whose saved state is far behind: a restart would replay all since then."""
    for broker in facts.brokers:
        applied, saved = (
            number(broker.figures.get(each)) for each in ("appliedIndex", "stateSavedIndex")
        )
        if applied is None or saved is None or applied - saved <= limits.DOCTOR_UNSAVED_ENTRIES:
            continue
        yield Finding(
            "snapshot-old",
            broker.name,
            f"its state was saved {int(applied - saved)} entries ago: a restart replays them",
            "look for `snapshot failed` in its log, and whether its disk is full",
        )


def set_aside(facts: Facts) -> Iterator[Finding]:
    """Members that hold entries without effect, or met an error of their own code."""
    for broker in facts.brokers:
        if broker.info is None:
            continue
        if broker.info.set_aside:
            yield Finding(
                "entries-set-aside",
                broker.name,
                f"{broker.info.set_aside} entries of the log have no effect on any member",
                "report it, with the reasons that mqadmin raftStatus shows",
            )
        if broker.info.faults:
            yield Finding(
                "faults",
                broker.name,
                f"{broker.info.faults} requests since its start met an error of its own code",
                "report it, with the tracebacks in its log",
            )


def config_differs(facts: Facts) -> Iterator[Finding]:
    """Keys that should be alike on all members of a group and are not."""
    for name, members in broker_groups(facts):
        for key in _ALIKE:
            values = {each.config[key]: each.name for each in members if key in each.config}
            if len(values) > 1:
                listed = ", ".join(f"{who}: {value or '(empty)'}" for value, who in values.items())
                yield Finding(
                    "config-differs",
                    name,
                    f"members have different {key}: {listed}",
                    "give all members the same value, and restart one after the other",
                )


def replicas_differ(facts: Facts) -> Iterator[Finding]:
    """Members whose logs, topics, consumer groups or users differ at the same entry."""
    for _, members in broker_groups(facts):
        for one, other in combinations(members, 2):
            what = _difference(one, other)
            if what:
                yield Finding(
                    "replicas-differ",
                    f"{one.name}, {other.name}",
                    what,
                    "keep a copy of both stores and report it; then stop the one that differs from "
                    "the others, remove its store, and start it: it copies the leader's",
                )


def _difference(one: BrokerFacts, other: BrokerFacts) -> str:
    """The difference between two replicas in words; "" if they are equal or can't be compared."""
    mine, theirs = log_digests(one), log_digests(other)
    wrong = [index for index in sorted(mine.keys() & theirs.keys()) if mine[index] != theirs[index]]
    if wrong:
        return f"their logs differ, at entry {wrong[0]} or before"
    if one.tables_index is None or one.tables_index != other.tables_index:
        return ""
    shared = sorted(one.tables.keys() & other.tables.keys())
    tables = [each for each in shared if one.tables[each] != other.tables[each]]
    if not tables:
        return ""
    return f"they hold different {', '.join(tables)} after the same entry, {one.tables_index}"


def log_digests(broker: BrokerFacts) -> dict[int, str]:
    """The digests of a broker's log, by the index of an entry."""
    pairs = (each.partition(":") for each in broker.figures.get("logDigests", "").split())
    return {
        int(index): digest
        for index, _, digest in pairs
        if index.isdecimal() and len(index) <= limits.OFFSET_DIGITS_MAX
    }


def not_compared(facts: Facts) -> Iterator[str]:
    """Broker groups whose members' states were not compared."""
    for name, members in broker_groups(facts):
        compared = [each for each in members if each.tables_index is not None]
        indices = {each.tables_index for each in compared}
        if len(compared) > 1 and len(indices) > 1:
            yield name
