"""Explanations of `aclExplain`, against the decisions of a broker's guard."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dledger.remoting.command import Command
from dledger.remoting.names import TOOLS_GROUP, TRACE_TOPIC
from dledger.trust.guard import Asker, Guard
from dledger.trust.policies import Entry, Known, Policies, explained
from dledger.trust.rights import Action, Kind, Need, cluster, group, topic
from dledger.trust.users import User, Users

KNOWN = Known("Here", ("a", "a_b"))
SOURCE = "10.0.0.1"
PLAIN = st.sampled_from(["a", "b", "a_b", "a_b_c", "a+b", "c_a"])
PREFIXES = st.sampled_from(["", "%RETRY%", "%DLQ%", "%PARTS%"])
TOPICS = st.builds(str.__add__, PREFIXES, PLAIN) | st.just(TRACE_TOPIC)
GROUPS = PLAIN | st.just(TOOLS_GROUP)
ACTIONS = st.sampled_from([each for each in Action if each is not Action.ALL])
RESOURCES = st.one_of(
    st.just("*"),
    st.builds("Topic:{}".format, TOPICS | st.sampled_from(["*", "a*", "%DLQ%*", "%RETRY%*"])),
    st.builds("Group:{}".format, GROUPS | st.sampled_from(["*", "a*"])),
    st.sampled_from(["Cluster:Here", "Cluster:There", "Cluster:*"]),
)
ENTRIES = st.builds(
    Entry,
    st.sampled_from(["Custom", "Default"]),
    RESOURCES,
    st.lists(ACTIONS | st.just(Action.ALL), min_size=1, max_size=3, unique=True).map(tuple),
    st.sampled_from([(), (SOURCE,), ("10.9.0.0/16",)]),
    st.sampled_from(["Allow", "Deny"]),
)
NEEDS = st.one_of(
    st.builds(Need, st.just(Kind.TOPIC), TOPICS, st.tuples(ACTIONS)),
    st.builds(Need, st.just(Kind.GROUP), GROUPS, st.tuples(ACTIONS)),
    st.builds(Need, st.just(Kind.CLUSTER), st.sampled_from(["Here", "There"]), st.tuples(ACTIONS)),
)
OF_GROUP = Entry("Custom", "Group:a", ("Sub",), (), "Allow")


def decided(entries: list[Entry], need: Need) -> bool:
    """The decision of a server's guard about a request with this need."""
    users = Users()
    users.put(User("u", b"", entries=tuple(entries)))
    guard = Guard(b"a secret of sixteen", lambda: [users], KNOWN, lambda: 0, b"key")
    rights = {Kind.TOPIC: topic, Kind.GROUP: group, Kind.CLUSTER: cluster}[need.kind]
    request = Command(1, {need.kind.lower(): need.name})
    return guard.refusal(Asker("u", SOURCE, users.get("u")), request, rights(*need.actions)) is None


@given(
    st.lists(ENTRIES, max_size=6, unique_by=lambda entry: (entry.policy, entry.resource)),
    NEEDS,
)
@example([OF_GROUP], Need(Kind.TOPIC, "%DLQ%a", (Action.SUB,)))
@example([OF_GROUP], Need(Kind.TOPIC, "%RETRY%a", (Action.PUB,)))
@example([], Need(Kind.TOPIC, TRACE_TOPIC, (Action.PUB,)))
def test_explained_as_decided(entries: list[Entry], need: Need) -> None:
    """An explanation allows what the broker serves and forbids what it refuses."""
    assume(need.kind is not Kind.CLUSTER or need.name == KNOWN.cluster)
    allowed, because = explained(Policies(entries), need, SOURCE, KNOWN)
    assert allowed is decided(entries, need), because
    named = [str(entry) for entry in entries]
    assert because in named or because == "every user may" or because.startswith("no entry matches")


def test_what_would_be_needed_is_enough() -> None:
    """Each entry that is named for dead letters lets them be read, once it is granted."""
    need = Need(Kind.TOPIC, "%DLQ%a", (Action.GET,))
    allowed, because = explained(Policies(), need, SOURCE, KNOWN)
    assert not allowed
    assert because == "no entry matches; Topic:%DLQ%a with Get or Group:a with Get would"
    for resource in ("Topic:%DLQ%a", "Group:a"):
        assert decided([Entry("Custom", resource, ("Get",), (), "Allow")], need)


@pytest.mark.parametrize("name", ["There", "any"])
def test_rights_on_another_cluster_do_not_count(name: str) -> None:
    """A broker asks for rights on its own cluster, whatever the request says."""
    entries = [Entry("Custom", f"Cluster:{name}", ("All",), (), "Allow")]
    need = Need(Kind.CLUSTER, name, (Action.UPDATE,))
    assert explained(Policies(entries), need, SOURCE, KNOWN)[0] is False
    assert not decided(entries, need)
