"""A node that got what it lacked: whether it goes on, or is about to end."""

from __future__ import annotations

import pytest
from answers import group_info

from mqchaos.cluster.layout import plan
from mqchaos.cluster.probe import NodeState
from mqchaos.faults.surroundings.resources import is_decided


def state(*, pid: int | None, answers: bool, fenced: str | None = None) -> NodeState:
    """A state of one node in a group, as the harness finds it."""
    layout = plan(range(20000, 20020))
    info = group_info(role="follower", fenced=fenced) if answers else None
    return NodeState(layout.nodes[0], pid, info)


@pytest.mark.parametrize(
    ("found", "decided"),
    [
        (state(pid=None, answers=False), True),
        (state(pid=7, answers=True), True),
        (state(pid=7, answers=True, fenced="[Errno 12] Cannot allocate memory"), False),
        (state(pid=7, answers=False), False),
    ],
    ids=["ended", "goes on", "fenced", "silent"],
)
def test_a_node_that_is_fenced_or_silent_is_about_to_end(
    found: NodeState, *, decided: bool
) -> None:
    """A fenced or silent node is about to end, and must be started again."""
    assert is_decided(found) is decided
