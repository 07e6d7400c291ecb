"""The route table: registered members, leaders, and queues of topics. Time is an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

import pytest

from dledger.remoting.bodies import DataVersion, TopicConfig
from dledger.slices import drained
from mqnamesrv import limits
from mqnamesrv.routing.groups import (
    Departure,
    Group,
    Member,
    Registration,
    RegistrationRefused,
    UnknownBroker,
)
from mqnamesrv.routing.routes import RouteTable

N0, N1, N2 = "127.0.0.1:10911", "127.0.0.1:10921", "127.0.0.1:10931"
Doomed: TypeAlias = Callable[[Group, Member], bool]


def topic(name: str, queues: int = 4, perm: int = 6) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)


def topics(*names: str) -> dict[str, TopicConfig]:
    return {name: topic(name) for name in names}


def leader(address: str = N0, term: int | None = 1, version: int = 1, *names: str) -> Registration:
    return Registration(
        cluster="DefaultCluster",
        broker_name="broker-a",
        broker_id=0,
        address=address,
        ha_address=address,
        term=term,
        expiry_s=3.0,
        data_version=DataVersion(counter=version, timestamp=7),
        topics=topics(*(names or ("TopicA", "TBW102"))),
    )


def follower(address: str, broker_id: int, term: int | None = 1) -> Registration:
    return replace(leader(address, term), broker_id=broker_id)


def addresses(table: RouteTable, name: str = "broker-a") -> dict[int, str]:
    brokers = drained(table.cluster_info()).broker_addr_table
    return brokers[name].broker_addrs if name in brokers else {}


def group_of_three() -> RouteTable:
    table = RouteTable()
    table.register(leader(N0), 10, now_s=0.0)
    table.register(follower(N1, 2), 11, now_s=0.0)
    table.register(follower(N2, 3), 12, now_s=0.0)
    return table


def test_a_topic_has_a_route_once_its_leader_has_registered() -> None:
    """The route names the group's members and the queues that its leader listed."""
    table = RouteTable()
    assert table.route_of("TopicA") is None
    table.register(leader(N0), 1, now_s=0.0)
    route = table.route_of("TopicA")
    assert route is not None
    assert [(q.broker_name, q.read_queue_nums, q.perm) for q in route.queue_datas] == [
        ("broker-a", 4, 6)
    ]
    assert [b.broker_addrs for b in route.broker_datas] == [{0: N0}]
    assert table.route_of("TopicB") is None


def test_the_topics_of_followers_do_not_count() -> None:
    """Followers add their addresses, and only the leader's topics make routes."""
    table = RouteTable()
    table.register(follower(N1, 2), 1, now_s=0.0)
    assert table.route_of("TopicA") is None
    assert addresses(table) == {2: N1}


def test_a_follower_learns_the_leader_from_its_registration() -> None:
    """The answer to a registration carries the address that holds id 0."""
    table = RouteTable()
    assert table.register(follower(N1, 2), 1, now_s=0.0).leader_address is None
    table.register(leader(N0), 2, now_s=0.0)
    assert table.register(follower(N1, 2), 1, now_s=0.0).leader_address == N0


def test_a_newer_leader_takes_the_place_of_the_old_one() -> None:
    """A leader of a newer term gets id 0; the old address is gone until it registers again."""
    table = group_of_three()
    done = table.register(leader(N1, term=2), 11, now_s=1.0)
    assert done.displaced == N0
    assert addresses(table) == {0: N1, 3: N2}
    table.register(follower(N0, 1, term=2), 10, now_s=2.0)
    assert addresses(table) == {0: N1, 1: N0, 3: N2}


def test_a_leader_of_an_older_term_is_refused() -> None:
    """A paused leader that comes back can't take the route; nothing changes by its attempt."""
    table = group_of_three()
    table.register(leader(N1, 2, 1, "TopicA", "TopicB"), 11, now_s=1.0)
    before = addresses(table)
    with pytest.raises(RegistrationRefused, match=r"term 1 .*10921 leads in term 2"):
        table.register(leader(N0, term=1), 10, now_s=2.0)
    assert addresses(table) == before
    assert table.route_of("TopicB") is not None


def test_the_newest_term_outlives_the_leader_that_had_it() -> None:
    """A leader whose connection broke still outranks older ones, for as long as terms are kept."""
    table = RouteTable()
    table.register(leader(N1, term=5), 11, now_s=0.0)
    table.connection_lost(11, now_s=1.0)
    with pytest.raises(RegistrationRefused):
        table.register(leader(N0, term=4), 10, now_s=2.0)
    for second in range(1, int(limits.TERM_MEMORY_S) + 3):
        table.expire(now_s=float(second))
    table.register(leader(N0, term=4), 10, now_s=limits.TERM_MEMORY_S + 3)
    assert addresses(table) == {0: N0}


def test_a_term_is_forgotten_with_the_leader_that_showed_it_whoever_stays() -> None:
    """A broker that claimed a term far ahead is gone: two minutes later it counts no more, although
    the group has never been empty."""
    table = group_of_three()
    table.register(leader(N2, term=1 << 30), 13, now_s=0.0)
    table.connection_lost(13, now_s=1.0)
    for second in range(1, int(limits.TERM_MEMORY_S) + 3):
        with pytest.raises(RegistrationRefused):
            table.register(leader(N0, term=2), 10, now_s=float(second))
        table.heartbeat("DefaultCluster", "broker-a", N1, None, now_s=float(second))
        table.expire(now_s=float(second))
    table.register(leader(N0, term=2), 10, now_s=limits.TERM_MEMORY_S + 3)
    assert addresses(table) == {0: N0, 2: N1}


def test_a_group_of_brokers_that_have_proven_takes_no_others() -> None:
    """A group that has proven itself takes no other leader, follower, heartbeat or goodbye."""
    table = RouteTable()
    table.register(replace(leader(N0), proven=True), 10, now_s=0.0)
    for other in (leader(N1, term=9), leader(N1, term=None), follower(N1, 1), follower(N0, 1)):
        with pytest.raises(RegistrationRefused, match="have proven"):
            table.register(other, 11, now_s=1.0)
    with pytest.raises(RegistrationRefused, match="have proven"):
        table.heartbeat("DefaultCluster", "broker-a", N0, 1, now_s=1.0)
    with pytest.raises(RegistrationRefused, match="have proven"):
        table.unregister("DefaultCluster", "broker-a", N0, now_s=1.0)
    table.heartbeat("DefaultCluster", "broker-a", N0, 1, now_s=1.0, proven=True)
    table.unregister("DefaultCluster", "broker-a", N0, now_s=1.0, proven=True)
    assert addresses(table) == {}


def test_a_broker_that_has_proven_finds_room_whatever_strangers_have_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A proven broker finds room, as the bound on groups is for those without a proof."""
    monkeypatch.setattr(limits, "BROKER_GROUPS_MAX", 2)
    table = RouteTable()
    for number in range(2):
        name = f"stranger-{number}"
        table.register(replace(leader(N1, None), broker_name=name), number, now_s=0.0)
    with pytest.raises(RegistrationRefused, match="2 groups already"):
        table.register(leader(N0), 10, now_s=0.0)
    table.register(replace(leader(N0), proven=True), 10, now_s=0.0)
    assert addresses(table) == {0: N0}


def test_a_group_that_said_goodbye_may_start_again_at_any_term() -> None:
    """A group whose members have all unregistered may begin again at term 1."""
    table = RouteTable()
    table.register(leader(N0, term=9), 10, now_s=0.0)
    table.unregister("DefaultCluster", "broker-a", N0, now_s=1.0)
    table.register(leader(N1, term=1), 11, now_s=1.0)
    assert addresses(table) == {0: N1}


def test_two_leaders_of_one_term_are_two_groups_under_one_name() -> None:
    """Raft elects one leader per term, so a second one is a configuration error and refused."""
    table = group_of_three()
    with pytest.raises(RegistrationRefused, match="two groups use one broker name"):
        table.register(leader(N1, term=1), 11, now_s=1.0)


def test_a_leader_without_terms_can_not_take_over_a_group_that_has_them() -> None:
    """A stock broker under the name of one of our groups is refused."""
    table = group_of_three()
    with pytest.raises(RegistrationRefused, match="no term"):
        table.register(leader("127.0.0.1:1", term=None), 13, now_s=1.0)


def test_a_leader_that_steps_down_leaves_place_zero() -> None:
    """A leader that steps down moves to its id as a follower, and its queues can be read."""
    table = group_of_three()
    table.register(follower(N0, 1, term=2), 10, now_s=1.0)
    assert addresses(table) == {1: N0, 2: N1, 3: N2}
    assert table.route_of("TopicA") is not None


def test_an_old_registration_as_follower_does_not_take_leadership_away() -> None:
    """A follower's registration that was overtaken on the way by the leader's is refused."""
    table = group_of_three()
    table.register(leader(N1, term=2), 11, now_s=1.0)
    with pytest.raises(RegistrationRefused):
        table.register(follower(N1, 2, term=1), 11, now_s=1.0)
    assert addresses(table)[0] == N1


def test_without_terms_the_last_registration_wins_unless_its_state_is_older() -> None:
    """Stock brokers follow RocketMQ's own rule, the state version."""
    table = RouteTable()
    newer = replace(leader(N0, term=None), data_version=DataVersion(state_version=3))
    table.register(newer, 1, now_s=0.0)
    older = replace(leader(N1, term=None), data_version=DataVersion(state_version=2))
    with pytest.raises(RegistrationRefused, match="newer state version"):
        table.register(older, 2, now_s=0.0)
    equal = replace(older, data_version=newer.data_version)
    assert table.register(equal, 2, now_s=0.0).displaced == N0


def test_a_stock_broker_must_register_fully_before_it_registers_single_topics() -> None:
    """RocketMQ's incremental registration is refused from a broker that is not known yet."""
    table = RouteTable()
    single = replace(leader(N0, term=None), topics=topics("TopicA"))
    with pytest.raises(RegistrationRefused, match="single topic"):
        table.register(single, 1, now_s=0.0)
    table.register(leader(N0, None, 1, "TopicB", "TBW102"), 1, now_s=0.0)
    table.register(replace(single, data_version=DataVersion(counter=2)), 1, now_s=0.0)
    assert drained(table.topics.names()) == ["TBW102", "TopicA", "TopicB"]


def test_our_leaders_list_all_their_topics_so_the_others_are_dropped() -> None:
    """A topic that a new list of a leader with a term lacks has no route any more."""
    table = group_of_three()
    table.register(leader(N0, 1, 2, "TopicB"), 10, now_s=1.0)
    assert drained(table.topics.names()) == ["TopicB"]


def test_a_wiped_permission_outlives_every_registration() -> None:
    """A new version of the topics, another leader, the whole group's return: it stays wiped."""
    table = group_of_three()
    table.topics.wiped = frozenset({"broker-a"})

    def perm() -> int:
        route = table.route_of("TopicA")
        assert route is not None
        return route.queue_datas[0].perm

    assert perm() == 4
    table.register(leader(N0, 1, version=2), 10, now_s=1.0)
    assert perm() == 4
    table.register(leader(N0, 2, version=2), 10, now_s=1.0)
    assert perm() == 4
    table.connection_lost(10, now_s=2.0)
    table.register(leader(N0, 3), 13, now_s=3.0)
    assert perm() == 4
    table.topics.wiped = frozenset()
    assert perm() == 6


@pytest.mark.parametrize("perm", [0, 2, 4, 6])
def test_a_permission_that_is_given_back_is_what_it_was(perm: int) -> None:
    """A topic that is read-only at its brokers is so afterwards."""
    table = RouteTable()
    table.register(leader(N0), 10, now_s=0.0)
    changed = {"TopicA": topic("TopicA", perm=perm)}
    table.register(replace(leader(N0, version=2), topics=changed), 10, now_s=0.0)
    for wiped, shown in ((frozenset({"broker-a"}), perm & 4), (frozenset[str](), perm)):
        table.topics.wiped = wiped
        (row,) = table.topics.queues("TopicA")
        assert row.perm == shown


def test_the_queues_of_a_group_that_is_away_are_remembered() -> None:
    """Queues of an absent group are in no route, and stay until it is back or the topic deleted."""
    table = group_of_three()
    assert table.topics.absent("TopicA") == []
    for connection in (10, 11, 12):
        table.connection_lost(connection, now_s=1.0)
    assert table.route_of("TopicA") is None
    (row,) = table.topics.absent("TopicA")
    assert (row.broker_name, row.write_queue_nums) == ("broker-a", 4)
    table.topics.remove_topic("TBW102", {"broker-a"})
    assert table.topics.absent("TBW102") == []
    table.register(leader(N0, 2), 13, now_s=2.0)
    assert table.topics.absent("TopicA") == []
    assert table.route_of("TopicA") is not None


def test_a_closed_connection_removes_its_brokers_at_once() -> None:
    """The members that registered over it go; the topics stay while the group has a member."""
    table = group_of_three()
    assert [d.address for d in table.connection_lost(10, now_s=1.0)] == [N0]
    assert addresses(table) == {2: N1, 3: N2}
    assert table.route_of("TopicA") is not None
    table.connection_lost(11, now_s=1.0)
    table.connection_lost(12, now_s=1.0)
    assert addresses(table) == {}
    assert table.route_of("TopicA") is None
    assert drained(table.cluster_info()).cluster_addr_table == {}


def test_the_end_of_an_old_connection_does_not_remove_a_broker_that_came_back() -> None:
    """A broker belongs to the connection of its last registration."""
    table = group_of_three()
    table.register(leader(N0), 99, now_s=1.0)
    assert table.connection_lost(10, now_s=1.0) == []
    assert addresses(table)[0] == N0


def test_the_end_of_a_connection_is_about_its_own_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a connection looks at its own groups alone, of ten thousand."""
    looked_at, remove = list[list[str]](), RouteTable._remove

    def noted(
        table: RouteTable, doomed: Doomed, now_s: float, names: Iterable[str]
    ) -> list[Departure]:
        looked_at.append([*names])
        return remove(table, doomed, now_s, looked_at[-1])

    table = group_of_three()
    table.register(replace(leader(N0), broker_name="broker-b"), 10, now_s=0.0)
    monkeypatch.setattr(RouteTable, "_remove", noted)
    assert table.connection_lost(77, now_s=1.0) == []
    assert len(table.connection_lost(10, now_s=1.0)) == 2
    assert table.connection_lost(10, now_s=1.0) == []
    assert [sorted(names) for names in looked_at] == [[], ["broker-a", "broker-b"], []]


def test_silent_members_expire_after_the_timeout_that_they_asked_for() -> None:
    """A member goes after a silence longer than its timeout; a heartbeat keeps it."""
    table = group_of_three()
    gone = []
    for tenths in range(10, 70, 10):
        now_s = tenths / 10
        table.heartbeat("DefaultCluster", "broker-a", N1, 1, now_s)
        gone += [(d.address, now_s) for d in table.expire(now_s)]
    assert gone == [(N0, 4.0), (N2, 4.0)]
    assert addresses(table) == {2: N1}


def test_a_stall_of_the_name_server_expires_nobody() -> None:
    """Heartbeats of that time may be unread, so every member gets the time back."""
    table = group_of_three()
    assert table.expire(now_s=1.0) == []
    assert table.expire(now_s=60.0) == []
    table.heartbeat("DefaultCluster", "broker-a", N0, 1, now_s=60.1)
    assert {d.address for d in table.expire(now_s=62.0) + table.expire(now_s=63.0)} == {N1, N2}


def test_a_heartbeat_of_an_unknown_broker_asks_it_to_register() -> None:
    """A member that was dropped must notice."""
    table = group_of_three()
    table.connection_lost(10, now_s=1.0)
    with pytest.raises(UnknownBroker):
        table.heartbeat("DefaultCluster", "broker-a", N0, 1, now_s=1.0)
    with pytest.raises(UnknownBroker):
        table.heartbeat("DefaultCluster", "broker-b", N0, 1, now_s=1.0)


def test_a_heartbeat_in_place_zero_with_an_older_term_is_refused() -> None:
    """A heartbeat of an older term does not keep place zero."""
    table = RouteTable()
    table.register(leader(N0, term=4), 10, now_s=0.0)
    with pytest.raises(RegistrationRefused, match="term 3"):
        table.heartbeat("DefaultCluster", "broker-a", N0, 3, now_s=2.0)
    table.expire(now_s=2.0)
    assert [d.address for d in table.expire(now_s=3.1)] == [N0]


def test_unregistering_removes_the_address_and_nobody_else() -> None:
    """A goodbye with the id of another member removes only the sender."""
    table = group_of_three()
    table.register(leader(N1, term=2), 11, now_s=1.0)
    assert table.unregister("DefaultCluster", "broker-a", N0, now_s=1.0) == []
    assert [d.broker_id for d in table.unregister("DefaultCluster", "broker-a", N2, 1.0)] == [3]
    assert addresses(table) == {0: N1}


def test_a_broker_name_belongs_to_one_cluster() -> None:
    """A broker name belongs to one cluster, since two would mix their queues."""
    table = group_of_three()
    other = replace(leader("127.0.0.1:1", term=7), cluster="Other")
    with pytest.raises(RegistrationRefused, match="belongs to cluster DefaultCluster"):
        table.register(other, 13, now_s=1.0)
    for connection in (10, 11, 12):
        table.connection_lost(connection, now_s=1.0)
    table.register(other, 13, now_s=1.0)
    assert drained(table.cluster_info()).cluster_addr_table == {"Other": ["broker-a"]}


def test_clusters_and_topics_are_listed() -> None:
    """Clusters and topics are sorted; a cluster's topics are those of its groups."""
    table = group_of_three()
    second = replace(leader(N2, 1, 1, "TopicB"), broker_name="broker-b", cluster="Other")
    table.register(second, 20, now_s=0.0)
    third = replace(leader(N1, 1, 1, "TopicA"), broker_name="broker-c", cluster="Other")
    table.register(third, 21, now_s=0.0)
    assert drained(table.cluster_info()).cluster_addr_table == {
        "DefaultCluster": ["broker-a"],
        "Other": ["broker-b", "broker-c"],
    }
    assert drained(table.topics_of_cluster("Other")) == ["TopicA", "TopicB"]
    assert drained(table.topics.names()) == ["TBW102", "TopicA", "TopicB"]
    route = table.route_of("TopicA")
    assert route is not None
    assert [b.broker_name for b in route.broker_datas] == ["broker-a", "broker-c"]


def test_a_topic_can_be_removed_from_all_groups_or_from_some() -> None:
    """A topic is removed from all groups or some; an unknown one is no error."""
    table = group_of_three()
    second = replace(leader(N2, 1, 1, "TopicA"), broker_name="broker-b")
    table.register(second, 20, now_s=0.0)
    table.topics.remove_topic("TopicA", {"broker-b", "unknown"})
    route = table.route_of("TopicA")
    assert route is not None
    assert [q.broker_name for q in route.queue_datas] == ["broker-a"]
    table.topics.remove_topic("TopicA")
    table.topics.remove_topic("TopicA")
    assert table.route_of("TopicA") is None


def test_members_and_groups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registrations are refused at the limits, and those within them stay."""
    monkeypatch.setattr(limits, "MEMBERS_PER_GROUP_MAX", 3)
    monkeypatch.setattr(limits, "BROKER_GROUPS_MAX", 1)
    monkeypatch.setattr(limits, "TOPICS_PER_GROUP_MAX", 2)
    table = group_of_three()
    with pytest.raises(RegistrationRefused, match="3 members"):
        table.register(follower("127.0.0.1:1", 7), 13, now_s=0.0)
    with pytest.raises(RegistrationRefused, match="1 groups"):
        table.register(replace(leader(), broker_name="broker-b"), 13, now_s=0.0)
    with pytest.raises(RegistrationRefused, match="3 topics"):
        table.register(leader(N0, 1, 2, "a", "b", "c"), 10, now_s=0.0)
    assert len(addresses(table)) == 3


def test_a_topic_that_a_tool_removed_comes_back_with_its_broker() -> None:
    """A removed topic comes back with its broker's next full registration.

    One that lists changes alone does not bring it, and the permission to write stays taken.
    """
    table = RouteTable()
    table.register(leader(N0), 1, now_s=0.0)
    table.topics.wiped = frozenset({"broker-a"})
    table.topics.remove_topic("TopicA")
    assert table.route_of("TopicA") is None

    table.register(replace(leader(N0), topics={}, since=1), 1, now_s=10.0)
    assert table.route_of("TopicA") is None

    table.register(leader(N0), 1, now_s=30.0)
    route = table.route_of("TopicA")
    assert route is not None
    assert route.queue_datas[0].write_queue_nums == 4
    kept = table.route_of("TBW102")
    assert kept is not None
    assert kept.queue_datas[0].perm & 2 == 0


def test_the_topics_of_all_groups_are_bounded_and_proven_brokers_find_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Topics of all groups are bounded, and proven brokers find room beside strangers'."""
    monkeypatch.setattr(limits, "TOPIC_ROWS_MAX", 3)
    table = RouteTable()
    table.register(leader(N0, 1, 1, "A", "B"), 1, now_s=0.0)
    other = replace(leader(N1, 1, 1, "A", "C"), broker_name="broker-b")
    with pytest.raises(RegistrationRefused, match="at most 3 are"):
        table.register(other, 2, now_s=0.0)
    table.register(replace(other, proven=True), 2, now_s=0.0)
    table.register(leader(N0, 1, 2, "A", "B"), 1, now_s=1.0)
    assert table.topics.rows == 4


def test_of_the_groups_that_are_away_those_that_proved_nothing_are_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many come, and however large: what a stranger registers and leaves takes no more
    memory than that, and pushes out no member of the cluster."""
    monkeypatch.setattr(limits, "ABSENT_GROUPS_MAX", 3)
    monkeypatch.setattr(limits, "ABSENT_ROWS_MAX", 5)
    table, connections = RouteTable(), iter(range(100))

    def come_and_go(name: str, *names: str, proven: bool = False) -> None:
        connection_id = next(connections)
        new = replace(leader(N0, 1, 1, *names), broker_name=name, proven=proven)
        table.register(new, connection_id, now_s=0.0)
        table.connection_lost(connection_id, now_s=1.0)

    def away() -> list[str]:
        return [row.broker_name for row in table.topics.absent("T")]

    come_and_go("ours", "T", "A", "B", "C", "D", "E", "F", proven=True)
    come_and_go("s1", "T", "A")
    come_and_go("s2", "T", "A", "B")
    assert away() == ["ours", "s1", "s2"]
    come_and_go("s3", "T")
    assert away() == ["ours", "s2", "s3"]
    come_and_go("s4", *"TABCD")
    assert away() == ["ours", "s4"]
    come_and_go("s5", *"TABCDE")
    assert away() == ["ours"]
    for number in range(3):
        come_and_go(f"also ours {number}", "T", proven=True)
    assert away() == ["also ours 0", "also ours 1", "also ours 2"]
