"""What passes between the library and the links, beyond the holes that docs/raft-holes.md lists."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dledger.raft.library import monotonic, use_clock
from dledger.raft.messages import PeerKind
from dledger.testing.scripted import Donor, ScriptedNode


@pytest.fixture(autouse=True)
def real_clock_afterwards() -> Iterator[None]:
    """The library's clock is a module global: give it back."""
    yield
    use_clock(monotonic)


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
    (answer,) = node.take("f", PeerKind.ACK)
    assert (answer.term, answer.fields[:3]) == (3, (3, False, True))
