"""Checks of the facts: one row for each check. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import combinations
from typing import NamedTuple

from dledger.limits import DAY_S, TLS_EXPIRES_SOON_S
from mqclient import limits
from mqclient.admin.doctor import replicas
from mqclient.admin.doctor.facts import Facts, Finding, broker_groups, number

_DISK_PERCENT = 75
"""diskMaxUsedSpaceRatio by default, from which brokers warn."""


def name_servers(facts: Facts) -> Iterator[Finding]:
    """Name servers that don't answer."""
    for each in facts.name_servers:
        if each.problem is not None:
            yield Finding(
                "name-server-away",
                each.address,
                f"the name server does not answer: {each.problem}",
                "start it (mqnamesrv), or name another one (-n)",
            )


def brokers_away(facts: Facts) -> Iterator[Finding]:
    """Addresses that clients get and that don't answer, and broker groups that are away."""
    registered = {
        address
        for namesrv in facts.name_servers
        for members in namesrv.brokers.values()
        for address in members.values()
    }
    for broker in facts.brokers:
        if broker.problem is None:
            continue
        source = "clients are told" if broker.address in registered else "the group names"
        yield Finding(
            "address-silent",
            f"{broker.broker_name} {broker.address}",
            f"the address that {source} for it does not answer: {broker.problem}",
            "start it; if it runs, its brokerIP1 and listenPort must be reachable from here",
        )
    for name, cluster in sorted(facts.away.items()):
        yield Finding(
            "group-away",
            name,
            f"no member of this broker group of {cluster} is registered with any name server",
            f"start its members, or retire it (mqadmin wipeWritePerm -b {name})",
        )


def not_registered(facts: Facts) -> Iterator[Finding]:
    """Members that answer, and that a name server which answers does not know."""
    asked = [each for each in facts.name_servers if each.problem is None]
    for broker in facts.brokers:
        if broker.problem is not None:
            continue
        lacking = [
            each.address
            for each in asked
            if broker.address not in each.brokers.get(broker.broker_name, {}).values()
        ]
        if not lacking:
            continue
        whom = "no name server knows it" if len(lacking) == len(asked) else "not known to"
        yield Finding(
            "not-registered",
            f"{broker.broker_name} {broker.address}",
            f"it runs, and {whom}: {', '.join(lacking)}",
            "name all name servers in its namesrvAddr (or -n); `registration` in its log says what "
            "they answer",
        )


def disk_fills(facts: Facts) -> Iterator[Finding]:
    """Disks above the level from which brokers warn, or take no messages."""
    for broker in facts.brokers:
        ratio = number(broker.figures.get("commitLogDiskRatio"))
        if ratio is None:
            continue
        warns = number(broker.config.get("diskMaxUsedSpaceRatio")) or _DISK_PERCENT
        stops = number(broker.config.get("diskSpaceWarningLevelRatio"))
        used = round(100 * ratio, 1)
        if used <= warns:
            continue
        full = stops is not None and used > stops
        what = ": no messages are taken" if full else ""
        yield Finding(
            "disk-fills",
            broker.name,
            f"the disk of its store is {used} % full (it warns above {warns:g} %){what}",
            "make room there, or have less kept: fileReservedTime, commitLogSizeMax",
        )


def clocks_apart(facts: Facts) -> Iterator[Finding]:
    """Members of a group whose clocks differ, beyond what the question itself may have cost."""
    for _, members in broker_groups(facts):
        clocks = [
            (each.clock_ahead_ms, each) for each in members if each.clock_ahead_ms is not None
        ]
        for (one_ms, one), (other_ms, other) in combinations(clocks, 2):
            apart_ms = abs(one_ms - other_ms)
            if apart_ms - one.clock_unsure_ms - other.clock_unsure_ms <= limits.DOCTOR_CLOCKS_MS:
                continue
            ahead = one if one_ms > other_ms else other
            yield Finding(
                "clocks-apart",
                f"{one.name}, {other.name}",
                f"their clocks are {apart_ms / 1000:.1f} s apart, and that of {ahead.name} is "
                "ahead: delayed messages come early or late when the other one leads",
                "have both machines' clocks set by NTP",
            )


def subscriptions_differ(facts: Facts) -> Iterator[Finding]:
    """Consumer groups whose members subscribe to different things."""
    for each in facts.differing:
        listed = "; ".join(
            f"{client} wants {wants}" for client, wants in sorted(each.wants.items())
        )
        yield Finding(
            "subscriptions-differ",
            f"group {each.group} on {each.broker_name}",
            f"its members do not subscribe to the same: {listed}",
            "give programs that want different messages groups of their own; during a deployment "
            "it passes",
        )


def dead_letters_grow(facts: Facts) -> Iterator[Finding]:
    """Consumer groups that gave up a message lately."""
    for each in facts.dead_letters:
        ago_s = (facts.asked_ms - each.last_ms) / 1000
        if not each.messages or ago_s > limits.DOCTOR_DEAD_LETTERS_S:
            continue
        yield Finding(
            "dead-letters-grow",
            f"group {each.group} on {each.broker_name}",
            f"it has {each.messages} dead letters, the last one {max(0.0, ago_s):.0f} s old",
            f"mend its handler (mqadmin deadLetters -g {each.group}), then mqadmin "
            f"redriveDeadLetters -g {each.group}",
        )


def versions_mixed(facts: Facts) -> Iterator[Finding]:
    """Broker groups whose members run different versions."""
    for name, members in broker_groups(facts):
        versions: dict[str, list[str]] = {}
        for each in members:
            version = each.figures.get("dledgerVersion") or each.figures.get("brokerVersionDesc")
            if version:
                versions.setdefault(version, []).append(each.name)
        if len(versions) > 1:
            listed = "; ".join(
                f"{each}: {', '.join(who)}" for each, who in sorted(versions.items())
            )
            yield Finding(
                "versions-mixed",
                name,
                f"its members run different versions: {listed}",
                "finish the update: followers first, the leader last (mqadmin transferLeader)",
            )


def certificates_end(facts: Facts) -> Iterator[Finding]:
    """Servers whose certificates end soon, or have ended."""
    servers = [
        *((each.name, each.certificate_ends_s) for each in facts.brokers),
        *((f"name server {each.address}", each.certificate_ends_s) for each in facts.name_servers),
    ]
    for name, ends_s in servers:
        if ends_s is None:
            continue
        left_s = ends_s - facts.asked_ms / 1000
        if left_s > TLS_EXPIRES_SOON_S:
            continue
        when = datetime.fromtimestamp(max(0.0, ends_s), UTC).isoformat(sep=" ")
        said = f"ends in {left_s // DAY_S:.0f} days" if left_s > 0 else "has ended"
        yield Finding(
            "certificate-ends",
            name,
            f"its certificate {said} ({when})",
            "renew it and replace the files: they are taken over without a restart",
        )


class Check(NamedTuple):
    """A check: its name in findings, and what it looks for."""

    name: str
    find: Callable[[Facts], Iterator[Finding]]


CHECKS = (
    Check("name-server-away", name_servers),
    Check("address-silent, group-away", brokers_away),
    Check("not-registered", not_registered),
    Check("no-leader", replicas.no_leader),
    Check("follower-behind", replicas.follower_behind),
    Check("replicas-differ", replicas.replicas_differ),
    Check("entries-set-aside, faults", replicas.set_aside),
    Check("disk-fills", disk_fills),
    Check("snapshot-old", replicas.snapshot_old),
    Check("clocks-apart", clocks_apart),
    Check("versions-mixed", versions_mixed),
    Check("config-differs", replicas.config_differs),
    Check("certificate-ends", certificates_end),
    Check("subscriptions-differ", subscriptions_differ),
    Check("dead-letters-grow", dead_letters_grow),
)


def findings(facts: Facts) -> tuple[Finding, ...]:
    """All that is wrong, in the order of the checks."""
    return tuple(finding for check in CHECKS for finding in check.find(facts))


def not_asked(facts: Facts) -> tuple[str, ...]:
    """The facts that the checks could not see, a sentence each."""
    return (
        *(f"not asked: {each.what}: {each.why}" for each in facts.unasked),
        *(
            f"not compared: the states of {name}'s members, which changed meanwhile"
            for name in replicas.not_compared(facts)
        ),
    )
