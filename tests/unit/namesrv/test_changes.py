"""Registrations that list changed topics alone, and when they are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dledger.remoting.bodies import DataVersion, TopicConfig
from dledger.slices import drained
from mqnamesrv import limits
from mqnamesrv.routing.groups import Registration, RegistrationRefused
from mqnamesrv.routing.routes import RouteTable

N0, N1 = "127.0.0.1:10911", "127.0.0.1:10921"


def topics(*names: str, queues: int = 4) -> dict[str, TopicConfig]:
    return {name: TopicConfig(name, queues, queues) for name in names}


def whole(*names: str, version: int = 1, term: int | None = 1) -> Registration:
    """A leader's registration with all its topics."""
    return Registration(
        cluster="DefaultCluster",
        broker_name="broker-a",
        broker_id=0,
        address=N0,
        term=term,
        data_version=DataVersion(counter=version),
        topics=topics(*names),
    )


def changes(*names: str, since: int, version: int, queues: int = 4) -> Registration:
    """A registration of the same member with changed topics."""
    changed = replace(whole(version=version), topics=topics(*names, queues=queues))
    return replace(changed, since=since)


def served(table: RouteTable) -> set[str]:
    return drained(table.topics.union({"broker-a"}))


def test_changed_topics_join_those_that_are_known() -> None:
    """A new one is added, a changed one replaced, and the others stay."""
    table = RouteTable()
    table.register(whole("A", "B"), 1, 0.0)
    table.register(changes("B", "C", since=1, version=3, queues=8), 1, 0.0)
    assert served(table) == {"A", "B", "C"}
    assert [table.topics.queues(name)[0].read_queue_nums for name in "ABC"] == [4, 8, 8]
    table.register(changes("D", since=3, version=4), 1, 0.0)
    assert served(table) == {"A", "B", "C", "D"}


@pytest.mark.parametrize("since", [0, 2, -1, 1 << 62])
def test_changes_of_another_list_are_refused(since: int) -> None:
    """The list that is held here is of version 1: nothing can be added to any other."""
    table = RouteTable()
    table.register(whole("A"), 1, 0.0)
    with pytest.raises(RegistrationRefused, match="known here is 1: register with all"):
        table.register(changes("B", since=since, version=9), 1, 0.0)
    assert served(table) == {"A"}


def test_changes_from_a_stranger_are_refused() -> None:
    """A name server that was restarted, or has dropped the member, holds no list."""
    table = RouteTable()
    with pytest.raises(RegistrationRefused, match="known here is none"):
        table.register(changes("B", since=1, version=2), 1, 0.0)
    table.register(whole("A"), 1, 0.0)
    table.connection_lost(1, 0.0)
    with pytest.raises(RegistrationRefused, match="known here is none"):
        table.register(changes("B", since=1, version=2), 2, 0.0)


def test_a_new_leader_and_one_of_a_new_term_list_all_their_topics() -> None:
    """A new leader, and one of a new term, must list all, as the list held may be another."""
    table = RouteTable()
    table.register(whole("A"), 1, 0.0)
    table.register(replace(whole(), address=N1, broker_id=2), 2, 0.0)
    for change in (
        replace(changes("B", since=1, version=2), term=2),
        replace(changes("B", since=1, version=2), term=2, address=N1),
    ):
        with pytest.raises(RegistrationRefused, match="register with all"):
            table.register(change, 1, 0.0)
    assert served(table) == {"A"}


def test_changes_come_up_against_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics that come one by one have the same bound as all at once."""
    monkeypatch.setattr(limits, "TOPICS_PER_GROUP_MAX", 3)
    table = RouteTable()
    table.register(whole("A", "B"), 1, 0.0)
    table.register(changes("B", "C", since=1, version=2), 1, 0.0)
    with pytest.raises(RegistrationRefused, match="lists 4 topics; at most 3"):
        table.register(changes("D", since=2, version=3), 1, 0.0)
