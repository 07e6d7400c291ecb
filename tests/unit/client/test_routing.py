"""The route table: RocketMQ's lists of queues, and whom it believes about leaders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import BadInput
from dledger.remoting.bodies import BrokerData, QueueData, TopicRouteData
from dledger.remoting.json_dialect import MessageQueue
from mqclient.connection.routing import RouteTable


def route(*names: str, leader: bool = True, perm: int = 6) -> TopicRouteData:
    addresses = {0: "leader", 1: "f1", 2: "f2"} if leader else {1: "f1", 2: "f2"}
    return TopicRouteData(
        broker_datas=[
            BrokerData("c", name, {key: f"{name}-{value}:1" for key, value in addresses.items()})
            for name in names
        ],
        queue_datas=[QueueData(name, 3, 2, perm) for name in names],
    )


def test_queues_are_listed_as_stock_clients_list_them() -> None:
    """Queues are sorted by broker name, with write counts for publishing, others for reading."""
    table = RouteTable()
    assert table.update("T", route("b", "a"))
    found = table.route("T")
    assert found is not None
    assert [(queue.broker_name, queue.queue_id) for queue in found.writable] == [
        ("a", 0),
        ("a", 1),
        ("b", 0),
        ("b", 1),
    ]
    assert [MessageQueue("T", "b", number) for number in range(3)] == list(found.readable[3:])


def test_permissions_are_respected() -> None:
    """A topic without write permission has no queue to publish to."""
    table = RouteTable()
    table.update("T", route("a", perm=4))
    found = table.route("T")
    assert found is not None
    assert found.writable == ()
    assert len(found.readable) == 3


def test_the_same_route_again_is_no_change() -> None:
    """A route with the same queues is no change; a new leader is none either."""
    table = RouteTable()
    assert table.update("T", route("a"))
    assert not table.update("T", route("a", leader=False))


def test_a_higher_term_outranks_a_lower_one_and_any_route() -> None:
    """An old leader's claim and a stale route don't take the leadership back."""
    table = RouteTable()
    table.update("T", route("a"))
    assert table.leader("a") == "a-leader:1"
    assert table.learn_leader("a", "a-f1:1", term=5)
    assert not table.learn_leader("a", "a-leader:1", term=4)
    table.suspect("a", "a-f1:1")
    table.update("T", route("a"))
    assert table.leader("a") is None
    assert table.learn_leader("a", "a-f2:1", term=6)
    assert table.leader("a") == "a-f2:1"


def test_a_redirect_is_followed_only_from_the_supposed_leader() -> None:
    """A redirect counts from the supposed leader alone; another member's late refusal does not."""
    table = RouteTable()
    table.update("T", route("a"))
    table.redirect("a", refused_by="a-leader:1", leader="a-f1:1")
    assert table.leader("a") == "a-f1:1"
    table.redirect("a", refused_by="a-leader:1", leader="a-f2:1")
    assert table.leader("a") == "a-f1:1"
    table.redirect("a", refused_by="a-f1:1", leader="a-f1:1")
    assert table.leader("a") is None


def test_nobody_leads_that_no_route_has_named() -> None:
    """A leader must be in a route: a member's word, of any term, makes no address a member."""
    table = RouteTable()
    table.update("T", route("a"))
    assert not table.learn_leader("a", "foreign:1", term=7)
    table.redirect("a", refused_by="a-leader:1", leader="foreign:1")
    assert table.leader("a") is None
    assert "foreign:1" not in table.members("a")


@pytest.mark.parametrize("term", [-1, (1 << 62), 6 + (1 << 32)])
def test_a_term_that_no_elections_explain_is_not_believed(term: int) -> None:
    """A client that took it would believe no true leader any more."""
    table = RouteTable()
    table.update("T", route("a"))
    assert table.learn_leader("a", "a-f1:1", term=5)
    assert not table.learn_leader("a", "a-f2:1", term)
    assert table.learn_leader("a", "a-f2:1", 5 + (1 << 32))


def test_members_are_never_forgotten() -> None:
    """A member that drops out of the route is still asked: name servers may lag."""
    table = RouteTable()
    table.update("T", route("a"))
    table.update("T", route("a", leader=False))
    assert {"a-leader:1", "a-f1:1", "a-f2:1"} == set(table.members("a"))


NAMES = ("a", "b", "c")
VIEWS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("here", "away", "unknown")))


def seen(view: dict[str, str]) -> TopicRouteData:
    """A route from a name server that has seen these groups, here or away."""
    data = route(*(name for name, how in view.items() if how == "here"))
    away = [QueueData(name, 3, 2) for name, how in view.items() if how == "away"]
    data.absent_queue_datas = away
    return data


def groups(table: RouteTable) -> set[str]:
    """The groups whose queues are written to."""
    found = table.route("T")
    assert found is not None
    return {queue.broker_name for queue in found.writable}


@given(st.lists(VIEWS, max_size=8))
def test_no_group_that_is_away_takes_queues_with_it(views: list[dict[str, str]]) -> None:
    """The queues of all groups that were seen stay, however servers and groups come and go."""
    table = RouteTable()
    table.update("T", route(*NAMES))
    whole = table.route("T")
    assert whole is not None
    for view in views:
        table.update("T", seen(view))
        after = table.route("T")
        assert after is not None
        assert after.writable == whole.writable


@given(st.lists(VIEWS, min_size=1, max_size=8))
def test_who_begins_later_knows_what_the_name_servers_know(views: list[dict[str, str]]) -> None:
    """A table that begins later knows each group that was ever told of, here or away."""
    table, known = RouteTable(), set[str]()
    for view in views:
        table.update("T", seen(view))
        known |= {name for name, how in view.items() if how != "unknown"}
        assert groups(table) == known


def test_what_an_operator_takes_from_a_group_is_gone() -> None:
    """A group's queues go with its permission, its queues, or the topic, also while it is away."""
    table = RouteTable()
    table.update("T", route("a", "b"))
    read_only = route("a", "b")
    read_only.queue_datas[0].perm = 4
    table.update("T", read_only)
    assert groups(table) == {"b"}
    table.update("T", route("a", "b"))
    read_only.withdrawn = ["a"]
    table.update("T", read_only)
    assert groups(table) == {"b"}
    table.update("T", route("a", "b"))
    deleted = route("b")
    deleted.without = ["a"]
    table.update("T", deleted)
    assert groups(table) == {"b"}
    table.update("T", route("a", "b"))
    wiped = route("b")
    wiped.absent_queue_datas = [QueueData("a", 3, 2, 4)]
    table.update("T", wiped)
    assert groups(table) == {"b"}


def test_a_topic_that_is_read_only_in_one_group_keeps_its_keys() -> None:
    """A read-only group keeps its queues, so that keys don't move while another takes them."""
    table = RouteTable()
    data = route("a", "b")
    data.queue_datas[0].perm, data.withdrawn = 4, []
    table.update("T", data)
    found = table.route("T")
    assert found is not None
    assert (groups(table), found.closed) == ({"a", "b"}, {"a"})
    data.queue_datas[1].perm = 4
    table.update("T", data)
    assert groups(table) == set()
    data.queue_datas[0].perm = 6
    table.update("T", data)
    assert groups(table) == {"a", "b"}


def test_a_topic_that_is_being_made_keeps_the_queues_that_it_was_promised() -> None:
    """Each group makes it by its own first message: until then it is there without the topic."""
    table = RouteTable()
    table.update("T", route("a", "b"), is_promise=True)
    for _ in range(2):
        made = route("a")
        made.without = ["b"]
        table.update("T", made)
        assert groups(table) == {"a", "b"}
    table.update("T", route("a", "b"))
    deleted = route("a")
    deleted.without = ["b"]
    table.update("T", deleted)
    assert groups(table) == {"a"}


def test_an_order_config_says_what_is_written_to() -> None:
    """An order config's queues are written to, in its order; others are read all the same."""
    table = RouteTable()
    data = route("a")
    data.order_topic_conf = "b:2;a:1"
    table.update("T", data)
    found = table.route("T")
    assert found is not None
    places = [(queue.broker_name, queue.queue_id) for queue in found.writable]
    assert places == [("b", 0), ("b", 1), ("a", 0)]
    assert {queue.broker_name for queue in found.readable} == {"a"}


@pytest.mark.parametrize("config", ["a", "a:", ":4", "a:-1", "a:x", "a:1;b", "a:9999999", "a:٣"])
def test_an_order_config_that_says_nothing_is_refused(config: str) -> None:
    """A wrong order config is refused, rather than that keys go anywhere."""
    data = route("a")
    data.order_topic_conf = config
    with pytest.raises(BadInput, match="order config"):
        RouteTable().update("T", data)
