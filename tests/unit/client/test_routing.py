"""The route table: RocketMQ's queue lists, and whose word on leadership counts."""

from __future__ import annotations

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
    """Sorted by broker name; write counts for publishing, read counts for reading."""
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
    """Only a difference in queues counts as a change; a new leader does not."""
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
    """Who refuses names another; a late refusal of somebody else changes nothing."""
    table = RouteTable()
    table.update("T", route("a"))
    table.redirect("a", refused_by="a-leader:1", leader="a-f1:1")
    assert table.leader("a") == "a-f1:1"
    table.redirect("a", refused_by="a-leader:1", leader="a-f2:1")
    assert table.leader("a") == "a-f1:1"
    table.redirect("a", refused_by="a-f1:1", leader="a-f1:1")
    assert table.leader("a") is None


def test_members_are_never_forgotten() -> None:
    """A member that drops out of the route is still asked: name servers may lag."""
    table = RouteTable()
    table.update("T", route("a"))
    table.update("T", route("a", leader=False))
    assert {"a-leader:1", "a-f1:1", "a-f2:1"} == set(table.members("a"))
