"""The harness's judgement of a group whose topic was administered, and of keys that moved."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mqchaos.history.events import Ack, Act, Deliver, End, Event, GroupOffset, Reset, Send
from mqchaos.limits import NS_PER_S
from mqchaos.run.ordinary.administered import (
    about_keys,
    administered,
    against_administering,
    against_moving,
    keys_in,
)

FOLLOWED_S = 3.0
END_S = 60


def at(seconds: float) -> int:
    return int(seconds * NS_PER_S)


def message(
    unique: str,
    offset: int,
    sent_s: float,
    *given_s: float,
    key: str = "k",
    broker: str = "a",
    queue: int = 0,
) -> list[Event]:
    """Sent, acknowledged, and given each time."""
    place = ("T", broker, queue, offset)
    return [
        Send(at(sent_s), "p", unique, "T", key, 0, 1),
        Ack(at(sent_s + 0.1), "p", unique, *place, 0),
        *(Deliver(at(seconds), "c", "G", *place, unique, 0) for seconds in given_s),
    ]


def deleted(began_s: float, ended_s: float) -> Act:
    return Act(at(ended_s), at(began_s), "tool", "delete-topic", "a", "T", done=True)


def passed(seconds: float, offset: int) -> GroupOffset:
    return GroupOffset(at(seconds), at(seconds), "a", "n0", "G", "T", 0, offset)


def reset(seconds: float, offset: int) -> Reset:
    """A reset that was asked at a time, and noted when it had settled."""
    return Reset(at(seconds + 2.1), at(seconds), "tool", "G", "T", "a", 0, offset)


def judged(events: Sequence[Event]) -> list[str]:
    ordered = sorted([*events, End(at(END_S))], key=lambda event: event.t)
    return against_administering(administered(lambda: iter(ordered), "G", FOLLOWED_S))


def test_a_message_of_the_last_life_must_be_given_and_those_before_may_have_gone_with_theirs() -> (
    None
):
    """Messages of the last life must be given, by their names; offsets begin anew in each life."""
    before, after = message("x0", 0, 1), message("y0", 0, 12, 13)
    assert judged([*before, deleted(9, 10), *after]) == []
    lost = message("y1", 1, 13)
    assert judged([*before, deleted(9, 10), *after, *lost]) == [
        "1 messages were never given to the group: T/a/0/1"
    ]


def test_what_was_sent_before_a_deletion_was_answered_may_be_of_either_life() -> None:
    """A message sent before a deletion was answered may be of either life, and accuses nobody."""
    assert judged([*message("x0", 0, 9.5), deleted(9, 10)]) == []


@pytest.mark.parametrize(
    ("again_s", "other", "wrong"),
    [
        ((21,), (), False),
        ((), (), True),
        ((), (reset(22, 8),), False),
        ((), (deleted(22, 23),), False),
        ((19,), (), True),
    ],
)
def test_a_reset_is_followed_by_members_that_run(
    again_s: tuple[float, ...], other: tuple[Event, ...], *, wrong: bool
) -> None:
    """The first message of where it goes comes again, unless something else came in between."""
    events = [*message("x3", 3, 1, 2, *again_s), passed(15, 8), reset(20, 3), *other]
    told = ["1 messages were not given again after a reset: T/a/0/3"]
    assert judged(events) == (told if wrong else [])


@pytest.mark.parametrize(("back_s", "wrong"), [(22, True), (26, False)])
def test_a_reset_need_not_be_followed_while_no_node_serves(back_s: float, *, wrong: bool) -> None:
    """A broker group whose nodes were all killed right after a reset gives nothing meanwhile."""
    events = [*message("x3", 3, 1, 2), passed(15, 8), reset(20, 3), reset(27, 8)]
    served = [*message("x8", 8, 20.2, 28), *message("x9", 9, back_s, 28)]
    told = ["1 messages were not given again after a reset: T/a/0/3"]
    assert judged([*events, *served]) == (told if wrong else [])


def test_a_reset_to_where_the_group_is_takes_it_nowhere() -> None:
    """A reset is no step back in a life in which the group has not been further."""
    events = message("x3", 3, 1, 2)
    assert judged([*events, passed(15, 3), reset(20, 3)]) == []
    assert judged([*events, passed(5, 8), deleted(9, 10), passed(15, 3), reset(20, 3)]) == []


def test_a_key_that_goes_to_two_queues_is_named_with_both() -> None:
    """A key in two queues, of one broker group or of several, is named with both."""
    stays = [*message("x0", 0, 1), *message("x1", 1, 2)]
    assert against_moving(keys_in(stays)) == []
    moves = message("x2", 0, 3, broker="b", queue=1)
    found = keys_in([*stays, *moves])
    assert against_moving(found) == ["messages of 1 keys went to several queues: k (a/0, b/1)"]
    assert about_keys(found) == (
        "3 messages (2 of a, 1 of b) had 1 keys, of which 1 went to several queues"
    )
