"""Who is in which group, and which groups a change concerns."""

from __future__ import annotations

import pytest

from dledger.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from mqbroker.refusal import Refused
from mqbroker.requests.groups.membership import Client, Membership


def consumer(group: str, *topics: str, version: int = 1) -> ConsumerData:
    subscriptions = [SubscriptionData(topic, sub_version=version) for topic in topics]
    return ConsumerData(group, subscription_data_set=subscriptions)


def beat(
    membership: Membership, connection_id: int, *consumers: ConsumerData, now_s: float = 0
) -> set[str]:
    client = Client(f"client-{connection_id}", f"10.0.0.{connection_id}:1", "PYTHON", 409)
    data = HeartbeatData(client.client_id, [ProducerData("P")], list(consumers))
    return membership.heartbeat(connection_id, client, data, now_s)


def members(membership: Membership, group: str) -> list[int]:
    found = membership.consumers(group)
    return sorted(found.members) if found is not None else []


def test_joining_changes_a_group_and_repeating_does_not() -> None:
    """Every notice makes all members rebalance: none may be sent for nothing."""
    membership = Membership()
    assert beat(membership, 1, consumer("G", "A")) == {"G"}
    assert beat(membership, 1, consumer("G", "A")) == set()
    assert beat(membership, 2, consumer("G", "A")) == {"G"}
    assert members(membership, "G") == [1, 2]


def test_another_set_of_topics_changes_the_group() -> None:
    """A new version of the same subscription does not, but is taken."""
    membership = Membership()
    beat(membership, 1, consumer("G", "A"))
    assert beat(membership, 1, consumer("G", "A", "B")) == {"G"}
    assert beat(membership, 1, consumer("G", "A")) == {"G"}
    assert beat(membership, 1, consumer("G", "A", version=5)) == set()
    beat(membership, 1, consumer("G", "A", version=3))
    group = membership.consumers("G")
    assert group is not None
    assert group.subscriptions["A"].sub_version == 5


def test_a_closed_connection_leaves_all_its_groups_at_once() -> None:
    """The members that stay must hear of it; an empty group is gone."""
    membership = Membership()
    beat(membership, 1, consumer("G", "A"), consumer("H", "A"))
    beat(membership, 2, consumer("G", "A"))
    assert membership.disconnected(1) == {"G", "H"}
    assert members(membership, "G") == [2]
    assert membership.consumers("H") is None
    assert set(membership.producers("P")) == {2}
    assert membership.disconnected(1) == set()


def test_unregistering_leaves_one_group() -> None:
    """A client can leave one group and stay in others."""
    membership = Membership()
    beat(membership, 1, consumer("G", "A"), consumer("H", "A"))
    assert membership.unregister(1, None, "G") == {"G"}
    assert membership.unregister(1, "P", None) == set()
    assert membership.unregister(9, "P", "H") == set()
    assert members(membership, "H") == [1]
    assert not membership.producers("P")


def test_a_silent_client_expires() -> None:
    """After 120 s without a heartbeat it is as good as gone."""
    membership = Membership()
    beat(membership, 1, consumer("G", "A"), now_s=0)
    beat(membership, 2, consumer("G", "A"), now_s=60)
    assert membership.expire(120) == set()
    assert membership.expire(121) == {"G"}
    assert members(membership, "G") == [2]


def test_a_heartbeat_can_name_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """One client can't fill the memory."""
    monkeypatch.setattr("mqbroker.limits.GROUPS_PER_CLIENT_MAX", 2)
    monkeypatch.setattr("mqbroker.limits.SUBSCRIPTIONS_PER_GROUP_MAX", 2)
    membership = Membership()
    with pytest.raises(Refused, match="names 3 groups"):
        beat(membership, 1, consumer("G"), consumer("H"))
    with pytest.raises(Refused, match="subscribes to 3 topics"):
        beat(membership, 1, consumer("G", "A", "B", "C"))
    assert membership.consumers("G") is None
