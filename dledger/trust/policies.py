"""Policies of users: their entries, and which of them decides about a need. Pure.

The rules are RocketMQ's ACL 2.0. An entry is of one resource: `Topic:name`, `Group:name`,
`Cluster:name`, or `*` for everything; a name that ends with `*` stands for all that begin so.
It allows or denies actions, from any address or from some. Custom entries that match a need's
resource, one of its actions and the source decide; if none matches, default entries do; if none of
them matches either, the answer is no. Of several that match the one of the most specific resource
decides: a kind before `*`, a whole name before a longer prefix before a shorter one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from dledger import limits
from dledger.errors import BadInput, shown
from dledger.remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo
from dledger.remoting.message import RETRY_PREFIX
from dledger.trust.rights import Action, Alternatives, Kind, Need, needs_of

CUSTOM: Final = "Custom"
DEFAULT: Final = "Default"
ALLOW: Final = "Allow"
DENY: Final = "Deny"
ANY: Final = "*"
SUBJECT_PREFIX: Final = "User:"

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
_KINDS: Final = {kind.lower(): kind for kind in (Kind.TOPIC, Kind.GROUP, Kind.CLUSTER)}
_ACTIONS: Final = {action.lower(): action for action in Action}


class Entry(NamedTuple):
    """An entry of a policy about a resource, as a snapshot keeps it."""

    policy: str
    resource: str
    actions: tuple[str, ...]
    sources: tuple[str, ...]
    decision: str

    def __str__(self) -> str:
        where = f" from {', '.join(self.sources)}" if self.sources else ""
        return f"{self.policy}: {self.decision} {'|'.join(self.actions)} on {self.resource}{where}"


class Verdict(NamedTuple):
    """Whether a need is met, and by which entry; None if none matches."""

    allowed: bool
    entry: Entry | None


class Policies:
    """The entries of one user, arranged for looking up."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries = tuple(entries)
        self._rules = {name: _Rules(self.entries, name) for name in (CUSTOM, DEFAULT)}

    def judge(self, need: Need, source: str) -> Verdict:
        """Whether a need is met for a request from an address."""
        for rules in self._rules.values():
            entry = rules.best(need, source)
            if entry is not None:
                return Verdict(entry.decision == ALLOW, entry)
        return Verdict(allowed=False, entry=None)

    def meets(self, alternatives: Alternatives, source: str) -> bool:
        """Whether one of these is met."""
        return any(self.judge(need, source).allowed for need in alternatives)


class _Rules:
    """The entries of one policy, by resource. Each resource has one."""

    def __init__(self, entries: Iterable[Entry], policy: str) -> None:
        self._exact: dict[tuple[str, str], _Rule] = {}
        self._prefixes: dict[str, dict[str, _Rule]] = {}
        self._any: _Rule | None = None
        for entry in entries:
            if entry.policy != policy:
                continue
            kind, _, name = entry.resource.partition(":")
            if entry.resource == ANY:
                self._any = _Rule(entry)
            elif name.endswith(ANY):
                self._prefixes.setdefault(kind, {})[name.removesuffix(ANY)] = _Rule(entry)
            else:
                self._exact[kind, name] = _Rule(entry)
        self._lengths = {
            kind: sorted({len(prefix) for prefix in prefixes}, reverse=True)
            for kind, prefixes in self._prefixes.items()
        }

    def best(self, need: Need, source: str) -> Entry | None:
        """The entry of a policy that decides."""
        return next(
            (rule.entry for rule in self._candidates(need) if rule.matches(need.actions, source)),
            None,
        )

    def _candidates(self, need: Need) -> Iterator[_Rule]:
        """The rules of the resource, the most specific first."""
        exact = self._exact.get((need.kind, need.name))
        if exact is not None:
            yield exact
        prefixes = self._prefixes.get(need.kind, {})
        for length in self._lengths.get(need.kind, ()):
            rule = prefixes.get(need.name[:length]) if length <= len(need.name) else None
            if rule is not None:
                yield rule
        if self._any is not None and need.kind is not Kind.USER:
            yield self._any


class _Rule:
    """An entry of a policy, parsed."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._actions = frozenset(entry.actions)
        self._sources: tuple[Network, ...] | None = None

    def matches(self, actions: Iterable[Action], source: str) -> bool:
        if Action.ALL not in self._actions and self._actions.isdisjoint(actions):
            return False
        if not self.entry.sources:
            return True
        if self._sources is None:  # when they are first asked for: a user may have thousands
            self._sources = tuple(map(ipaddress.ip_network, self.entry.sources))
        return _is_within(source, self._sources)


def _is_within(source: str, networks: Iterable[Network]) -> bool:
    try:
        address = ipaddress.ip_address(source.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    address = address if mapped is None else mapped
    return any(address in network for network in networks)


def entries_of(acl: AclInfo) -> list[Entry]:
    """The entries that a tool gives, checked. Raises BadInput."""
    return distinct(each_entry(acl))


def distinct(entries: Iterable[Entry]) -> list[Entry]:
    """The last one of each resource."""
    return list({(entry.policy, entry.resource): entry for entry in entries}.values())


def each_entry(acl: AclInfo) -> Iterator[Entry]:
    """The entries that a tool gives, one by one, for a caller that shares its loop. Raises
    BadInput, with RocketMQ's texts where it has one, and before any work for more entries than a
    user may have."""
    if not acl.policies:
        raise BadInput("The policies is empty.")
    count = sum(len(_given(policy)) for policy in acl.policies)
    if count > limits.ACL_ENTRIES_PER_USER_MAX:
        most = limits.ACL_ENTRIES_PER_USER_MAX
        raise BadInput(f"{count} entries; at most {most} are kept of a user")
    for policy in acl.policies:
        kind = policy_type(policy.policy_type)
        for entry in _given(policy):
            yield _entry(kind, entry)


def _given(policy: PolicyInfo) -> list[PolicyEntryInfo]:
    if not policy.entries:
        raise BadInput("The policy entries is empty.")
    return policy.entries


def policy_type(given: str | None) -> str:
    """A policy's type; custom if none is given."""
    if not given:
        return CUSTOM
    known = {CUSTOM.lower(): CUSTOM, DEFAULT.lower(): DEFAULT}
    if given.lower() not in known:
        raise BadInput(f"the policy type {shown(given)} is neither Custom nor Default")
    return known[given.lower()]


def _entry(policy: str, entry: PolicyEntryInfo) -> Entry:
    sources = tuple(dict.fromkeys(map(_source, entry.source_ips or ())))
    if len(sources) > limits.ACL_SOURCES_MAX:
        raise BadInput(f"{len(sources)} source addresses; at most {limits.ACL_SOURCES_MAX} of one")
    decision = (entry.decision or "").capitalize()
    if decision not in (ALLOW, DENY):
        raise BadInput(f"the decision {shown(entry.decision or '')} is neither Allow nor Deny")
    return Entry(policy, resource(entry.resource), _actions(entry.actions), sources, decision)


def resource(given: str | None) -> str:
    """A resource as it is kept. Raises BadInput."""
    if not given:
        raise BadInput("The resource is null.")
    if given == ANY:
        return ANY
    kind, separator, name = given.partition(":")
    known = _KINDS.get(kind.lower())
    if known is None or not separator or not name:
        raise BadInput(
            f"the resource {shown(given)} is not valid: expected Topic:NAME, Group:NAME or "
            "Cluster:NAME, whose name may end with *, or * alone"
        )
    size = len(name.encode(errors="replace"))
    if ANY in name[:-1] or not name.isprintable() or size > limits.ACL_NAME_BYTES_MAX:
        raise BadInput(
            f"the resource {shown(given)} is not valid: a name has at most "
            f"{limits.ACL_NAME_BYTES_MAX} bytes, and * only at its end"
        )
    return f"{known}:{name}"


def _actions(given: list[str] | None) -> tuple[str, ...]:
    actions = []
    for name in given or ():
        if name.lower() == "any":
            raise BadInput("The actions can not be Any.")
        if name.lower() not in _ACTIONS:
            raise BadInput(f"the action {shown(name)} is not one of {', '.join(Action)}")
        actions.append(_ACTIONS[name.lower()].value)
    if not actions:
        raise BadInput("The actions is empty.")
    return tuple(dict.fromkeys(actions))


def _source(given: str) -> str:
    try:
        network = ipaddress.ip_network(given.strip(), strict=False)
    except ValueError as error:
        raise BadInput(f"the source address {shown(given)} is not valid: {error}") from error
    whole = network.prefixlen == network.max_prefixlen
    return str(network.network_address if whole else network)


def described(name: str, entries: Iterable[Entry]) -> AclInfo:
    """A user's entries, as tools are shown them."""
    policies: dict[str, list[PolicyEntryInfo]] = {}
    for entry in entries:
        info = PolicyEntryInfo(
            entry.resource, list(entry.actions), list(entry.sources) or None, entry.decision
        )
        policies.setdefault(entry.policy, []).append(info)
    return AclInfo(
        SUBJECT_PREFIX + name, [PolicyInfo(policy, found) for policy, found in policies.items()]
    )


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
