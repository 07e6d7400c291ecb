"""Bounds that the audit shares with brokers about topics with priorities."""

from __future__ import annotations

import json
from pathlib import Path

import mqbroker.limits
from mqspark.history.files import read_meta
from mqspark.limits import IN_HAND_MAX


def test_nothing_is_judged_that_the_broker_may_hold_back() -> None:
    """The audit judges no queue with so many messages in flight that the broker gives none."""
    assert IN_HAND_MAX <= mqbroker.limits.POP_IN_FLIGHT_PER_QUEUE_MAX


def test_a_history_says_which_topics_have_priorities(tmp_path: Path) -> None:
    """A history has its topics with priorities, with the number of queues."""
    for number, levels in enumerate([{"T": 8}, {"U": 1}, None]):
        meta = {"kind": "meta", "t": 1, "topic": "T", "levels": levels}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(meta) + "\n")
    assert read_meta(tmp_path, set).levels == {"T": 8, "U": 1}
