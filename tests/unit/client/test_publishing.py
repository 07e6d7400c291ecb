"""The queue that a message goes to, and the messages that a subscription matches."""

from __future__ import annotations

import pytest

from dledger.addresses import parse_addresses
from dledger.errors import BadInput
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.names import check_group_name, check_topic_name
from mqclient.consuming.subscriptions import Sql, parse_subscription
from mqclient.errors import BadMessage
from mqclient.models import Message
from mqclient.producing.publishing import Publisher

QUEUES = tuple(MessageQueue("T", broker, number) for broker in "ab" for number in range(2))
MESSAGE = Message("T", b"")


def publisher(leaderless: str = "", turn: int = 0) -> Publisher:
    return Publisher("T", QUEUES, lambda broker: broker not in leaderless, turn)


def test_queues_take_turns() -> None:
    """Messages without a queue or a key go to every queue in turn."""
    each = publisher()
    chosen = [each.choose(MESSAGE, None, None, None) for _ in range(8)]
    assert all(chosen.count(queue) == 2 for queue in QUEUES)


def test_turns_begin_where_they_are_told() -> None:
    """Producers that send one message each must not all send it to the same queue."""
    firsts = {publisher(turn=turn).choose(MESSAGE, None, None, None) for turn in range(4)}
    assert firsts == set(QUEUES)


def test_turns_pass_over_a_group_without_a_leader() -> None:
    """A group without a leader is passed over; without any leader, messages wait for one."""
    each = publisher(leaderless="a")
    chosen = {each.choose(MESSAGE, None, None, None).broker_name for _ in range(8)}
    assert chosen == {"b"}
    assert publisher(leaderless="ab").choose(MESSAGE, None, None, None) in QUEUES


@pytest.mark.parametrize("there", [1, 2, 3])
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_whatever_leaves_a_group_finds_the_other_as_often_as_it_looks(
    gone: int, there: int
) -> None:
    """A message of a dead group finds the other one, however few queues that has."""
    counts = {"a": gone, "b": there}
    queues = tuple(MessageQueue("T", name, each) for name in "ab" for each in range(counts[name]))
    for turn in range(len(queues)):
        each = Publisher("T", queues, lambda broker: broker == "b", turn)
        found = [each.elsewhere("a") for _ in range(2 * len(queues))]
        assert set(found) == {queue for queue in queues if queue.broker_name == "b"}
        assert each.elsewhere("b") is None


def test_a_key_picks_its_queue_as_java_would() -> None:
    """A key's queue is Math.abs("order-17".hashCode()) % 4, whoever leads."""
    code = 0
    for character in "order-17":
        code = (31 * code + ord(character)) & 0xFFFF_FFFF
    code -= (code & 0x8000_0000) << 1
    expected = QUEUES[abs(code) % 4]
    assert expected == publisher(leaderless="ab").choose(MESSAGE, None, "order-17", None)


def test_a_choice_outside_the_topic_is_refused() -> None:
    """A number or a selector's queue that the topic does not have."""
    with pytest.raises(BadMessage, match="no queue 9"):
        publisher().choose(MESSAGE, 9, None, None)
    with pytest.raises(BadMessage, match="not a queue of 'T'"):
        publisher().choose(MESSAGE, None, None, lambda _, __: MessageQueue("U", "a", 0))
    chosen = publisher().choose(MESSAGE, None, None, lambda queues, _: queues[3])
    assert QUEUES[3] == chosen


def test_subscriptions_follow_rocketmqs_syntax() -> None:
    """ "*" is everything; tags are separated by ||; an empty tag is a mistake."""
    assert parse_subscription("T", "*", 1).tags_set == ()
    tags = parse_subscription("T", " A || B ", 1)
    assert (tags.tags_set, tags.code_set) == (("A", "B"), (65, 66))
    for wrong in ("A || ", "A |", "A|B", "|", "||", "A ||| B"):
        with pytest.raises(BadInput, match="TagA"):
            parse_subscription("T", wrong, 1)
    sql = parse_subscription("T", Sql("a > 1"), 1)
    assert (sql.sub_string, sql.expression_type, sql.tags_set) == ("a > 1", "SQL92", ())


def test_addresses_and_groups_are_checked_before_use() -> None:
    """Lists by semicolon, IPv6 in brackets; the error shows what was given and what is expected."""
    assert parse_addresses("h:1; [::1]:2 ;") == ("h:1", "[::1]:2")
    for bad in ("", "h", "h:port", ":1"):
        with pytest.raises(BadInput, match="host:port"):
            parse_addresses(bad)


@pytest.mark.parametrize("name", ["C G", "", "ü", "a.b", "x" * 128])
def test_names_that_brokers_refuse_are_refused_before(name: str) -> None:
    """Names are refused by RocketMQ's rule; a group's leaves room for its retry topic's prefix."""
    check_topic_name("%RETRY%" + "x" * 120)
    check_group_name("CG_1|-" + "x" * 114)
    for check in (check_topic_name, check_group_name):
        with pytest.raises(BadInput, match="characters a-z"):
            check(name)
    with pytest.raises(BadInput, match="1 to 120"):
        check_group_name("x" * 121)
