"""Messages between the library and the links, beyond docs/explanation/raft-holes.md."""

from __future__ import annotations

from unittest.mock import patch

from dledger.errors import AppendError
from dledger.log.entry import Kind
from dledger.raft.appends import Appended
from dledger.raft.library.adapter import Core
from dledger.raft.limits import BURST_ENTRIES, ELECTION_TIMEOUT_MAX_S
from dledger.raft.messages import Ack, Append
from dledger.raft.roles import Role
from dledger.testing.scripted.node import Donor, ScriptedNode


def test_an_acknowledgement_of_an_older_term_holds_nothing_back() -> None:
    """f's twenty entries of term 1 were cut before they were durable. When f leads again, the
    acknowledgement that still waits for them must not stand before the new ones: f would never
    hear from this node again."""
    first, second = Donor(), Donor()
    first.add(1, 19)
    second.add(2, 1)
    node = ScriptedNode()
    node.sync()
    node.receive_append("f", 1, first, 2, 20)
    node.step(sync=False)
    node.receive_append("g", 2, second, 2, 2)
    node.step()
    assert node.terms == [0, 2]
    node.receive_append("f", 3, second, 3, 2)
    node.step()
    (answer,) = node.take("f", Ack)
    assert answer == Ack(3, 3, False, True, answer.sequence)


def test_an_acknowledgement_that_waited_for_the_leaders_disk_is_no_news() -> None:
    """The leader is cut off while its own sync takes long. The acknowledgements from before
    count for the commit then, but its patience still counts from when it last heard from anyone."""

    def role_soon_after_the_last_word() -> Role:
        node = ScriptedNode()
        node.serve("f")
        outcome = node.append()
        node.step(sync=False)
        node.receive("f", Ack(node.engine.core.term, 4, False, True, 9))
        node.advance(ELECTION_TIMEOUT_MAX_S - 0.1, sync=False)
        assert outcome == []
        node.sync()
        assert isinstance(outcome[0], Appended)
        node.advance(0.2)
        return node.engine.core.role

    assert role_soon_after_the_last_word() is Role.FOLLOWER
    with patch.object(Core, "set_last_contact", lambda *_: None):
        assert role_soon_after_the_last_word() is Role.LEADER


def test_a_leader_with_a_slow_disk_goes_on_leading() -> None:
    """Every sync takes 0.6 s, the followers answer at once: contact is contact."""
    node = ScriptedNode()
    node.serve("f")
    for _ in range(5):
        outcome = node.append()
        node.step(sync=False)
        end = node.log.last_index + 1
        for _ in range(6):
            node.receive("f", Ack(node.engine.core.term, end, False, True, 9))
            node.advance(0.1, sync=False)
        node.sync()
        assert isinstance(outcome[0], Appended)
    assert node.engine.standing.serving


def test_a_burst_leaves_before_its_end() -> None:
    """A burst of appends is sent before its end, so that followers work on it meanwhile.

    Eighty appends are committed, and the caller of each makes another one.
    """
    node = ScriptedNode()
    node.serve("f")
    under_way: list[int] = []

    def again(outcome: Appended | AppendError) -> None:
        assert isinstance(outcome, Appended)
        sent = node.take("f", Append)
        under_way.append((under_way or [0])[-1] + sum(message.count for message in sent))
        node.engine.append(b"body", Kind.MESSAGES, lambda _: None)

    for _ in range(80):
        node.engine.append(b"body", Kind.MESSAGES, again)
    node.step()
    node.take("f")
    node.acknowledge("f", node.log.last_index)
    node.step()
    assert (
        under_way
        == [0] * BURST_ENTRIES + [BURST_ENTRIES] * BURST_ENTRIES + [2 * BURST_ENTRIES] * 16
    )
