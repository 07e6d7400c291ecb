"""Members of consumer groups, and which groups a change concerns."""

from __future__ import annotations

import msgspec
import pytest

from dledger.remoting.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from dledger.remoting.codes import ResponseCode
from mqbroker import limits
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
    """A closed connection's groups are told to its members; an empty group is forgotten."""
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
    """A client leaves its groups 120 s after its last heartbeat."""
    membership = Membership()
    beat(membership, 1, consumer("G", "A"), now_s=0)
    beat(membership, 2, consumer("G", "A"), now_s=60)
    assert membership.expire(120) == set()
    assert membership.expire(121) == {"G"}
    assert members(membership, "G") == [2]


def test_a_heartbeat_can_name_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat with too many groups or topics is refused: memory is bounded."""
    monkeypatch.setattr("mqbroker.limits.GROUPS_PER_CLIENT_MAX", 2)
    monkeypatch.setattr("mqbroker.limits.SUBSCRIPTIONS_PER_GROUP_MAX", 2)
    membership = Membership()
    with pytest.raises(Refused, match="names 3 groups"):
        beat(membership, 1, consumer("G"), consumer("H"))
    with pytest.raises(Refused, match="subscribes to 3 topics"):
        beat(membership, 1, consumer("G", "A", "B", "C"))
    assert membership.consumers("G") is None


def particular(topics: dict[str, str], allocation: str | None = "averaged") -> ConsumerData:
    """A member that wants to be refused if it differs."""
    subscriptions = [
        SubscriptionData(topic, expression, expression.split(" || "))
        for topic, expression in topics.items()
    ]
    return ConsumerData(
        "G",
        subscription_data_set=[*subscriptions, SubscriptionData("%RETRY%G")],
        same_subscriptions=True,
        allocation=allocation,
    )


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (particular({"A": "x"}), "[A x], shared out as averaged"),
        (particular({"A": "x || y", "B": "z"}), "[A x || y, B z]"),
        (particular({"A": "x || y"}, "sticky"), "shared out as sticky"),
    ],
)
def test_a_member_that_differs_is_refused_with_both_named_if_it_asks_for_that(
    other: ConsumerData, told: str
) -> None:
    """A member that differs is refused with both subscriptions, if it asks for the check."""
    membership = Membership()
    beat(membership, 1, particular({"A": "y || x"}))
    membership.reads("G", 1)
    with pytest.raises(Refused) as refused:
        beat(membership, 2, other)
    assert refused.value.code == ResponseCode.SUBSCRIPTION_DIFFERS
    assert "client-1 subscribes to [A x || y], shared out as averaged" in str(refused.value)
    assert told in str(refused.value)
    assert (members(membership, "G"), membership.kept_bytes(2)) == ([1], 0)
    beat(membership, 3, particular({"A": "x || y"}))
    beat(membership, 4, msgspec.structs.replace(other, same_subscriptions=False))
    assert members(membership, "G") == [1, 3, 4]
    beat(membership, 1, particular({"A": "x || y"}))


def test_a_member_that_never_reads_keeps_nobody_out() -> None:
    """A stranger's heartbeat once locked all new members of a group out."""
    membership = Membership()
    beat(membership, 1, particular({"Nonsense": "*"}))
    membership.reads("Other", 1)
    membership.reads("G", 7)
    beat(membership, 2, particular({"A": "*"}))
    membership.reads("G", 2)
    beat(membership, 3, particular({"A": "*"}))
    with pytest.raises(Refused, match="client-2 subscribes to"):
        beat(membership, 4, particular({"B": "*"}))
    membership.disconnected(2)
    beat(membership, 4, particular({"B": "*"}))


def test_a_stock_member_is_compared_by_what_it_subscribes_to() -> None:
    """A stock member is compared by its subscriptions; one that reconnects is the same."""
    membership = Membership()
    beat(membership, 1, consumer("G", "A"))
    beat(membership, 2, particular({"A": "*"}))
    membership.reads("G", 2)
    with pytest.raises(Refused):
        beat(membership, 3, particular({"B": "*"}))
    again = Client("client-2", "10.0.0.2:2", "PYTHON", 409)
    data = HeartbeatData("client-2", [], [particular({"A": "*"})])
    membership.disconnected(1)
    assert membership.heartbeat(9, again, data, 0) == {"G"}
    membership.disconnected(2)
    membership.disconnected(9)
    assert membership.consumers("G") is None


def test_members_that_differ_are_told_with_what_each_wants() -> None:
    """Members that differ are told with what each wants, refused ones until they expire."""
    membership = Membership()
    assert membership.differing("G", 0) == {}
    beat(membership, 1, particular({"A": "*"}))
    membership.reads("G", 1)
    assert membership.differing("G", 0) == {}
    with pytest.raises(Refused):
        beat(membership, 2, particular({"B": "*"}))
    shown = "shared out as averaged"
    assert membership.differing("G", limits.CLIENT_EXPIRY_S) == {
        "client-1": f"[A *], {shown}",
        "client-2": f"[B *], {shown}",
    }
    assert membership.differing("G", limits.CLIENT_EXPIRY_S + 1) == {}
    other = msgspec.structs.replace(particular({"C": "*"}), same_subscriptions=False)
    beat(membership, 3, other)
    assert set(membership.differing("G", limits.CLIENT_EXPIRY_S + 1)) == {"client-1", "client-3"}


def test_groups_that_kept_somebody_out_are_bounded() -> None:
    """Groups with refused members are remembered up to a bound; the oldest is forgotten."""
    membership = Membership()
    names = [f"G{number}" for number in range(limits.GROUPS_KEPT_OUT_MAX + 1)]
    for number, name in enumerate(names, 100):
        mine, other = (
            msgspec.structs.replace(particular({topic: "*"}), group_name=name) for topic in "AB"
        )
        beat(membership, number, mine)
        membership.reads(name, number)
        with pytest.raises(Refused):
            beat(membership, 7, other)
    told = [name for name in names if membership.differing(name, 0)]
    assert told == names[1:]
