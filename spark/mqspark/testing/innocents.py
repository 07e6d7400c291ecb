"""Innocent oddities in a small run: they prove nothing, so nothing may be found.

Each looks like a fault of :mod:`mqspark.testing.small_plants`, and has an explanation.
"""

from __future__ import annotations

import random
from typing import Final

from mqspark.testing.plants import batch as batches
from mqspark.testing.plants import (
    batches as more_batches,
)
from mqspark.testing.plants import content as contents
from mqspark.testing.plants import elsewhere, strange, subtle, thin, times, tools, unseen, waiting
from mqspark.testing.plants import group as groups
from mqspark.testing.plants import life as lives
from mqspark.testing.plants import log as logs
from mqspark.testing.plants.content import acked
from mqspark.testing.plants.group import END
from mqspark.testing.small_plants import Plant, made_again, sent_again, went_back
from mqspark.testing.small_runs import NODES, TOPIC, Entry, SmallRun

_SOON_NS: Final = 100


def concurrent_commits(run: SmallRun, draw: random.Random) -> None:
    """Two members' commits were under way at the same time: either may be applied last."""
    commit = draw.choice(run.of("commit"))
    lower = {"t": commit["t"] + 20, "offset": commit["offset"] - 1, "client": "another"}
    run.events.append({**commit, **lower})


def reset_by_a_tool(run: SmallRun, draw: random.Random) -> None:
    """An operator set the group back; it goes on from there."""
    commit = run.of("commit")[-1]
    back = {"offset": commit["offset"] - 1, "client": "tool"}
    run.events.append({**commit, **back, "kind": "reset", "began": END, "t": END + 10})
    run.events.append({**commit, **back, "began": END + 20, "t": END + 30})


def overtaken_commit(run: SmallRun, draw: random.Random) -> None:
    """A member that had lost its queue committed what it had; the group was further already."""
    went_back(run, draw)
    run.events[-1]["client"] = "another"


def disk_taken_away(run: SmallRun, draw: random.Random) -> None:
    """A node came back with an older term, for the harness had emptied its disk."""
    logs.forgotten_term(run, draw)
    vote = run.events[-1]
    lost = {"kind": "fault", "fault": "wipe", "t": vote["t"] - _SOON_NS // 2}
    run.events.append({name: vote[name] for name in ("broker", "node")} | lost)


def asked_meanwhile(run: SmallRun, draw: random.Random) -> None:
    """An end was asked for while the acknowledgement was on its way."""
    ack = acked(run, draw)
    look = {"broker": run.broker, "topic": TOPIC, "queue_id": ack["queue_id"]}
    earlier = {"offset": ack["offset"], "began": ack["t"], "t": ack["t"] + 20}
    run.events.append({"kind": "queue_end", **look, **earlier})


def replaced_unawares(run: SmallRun, draw: random.Random) -> None:
    """A leader of the first term answers late; what the second term stored is not in its log."""
    subtle.answered_late(run)


def unanswered(run: SmallRun, draw: random.Random) -> None:
    """No answer came for some that were stored, and for some the answer was lost."""
    for ack in draw.sample(run.of("ack", waiting=None, topic=TOPIC), 2):
        run.events.remove(ack)


def delivered_again(run: SmallRun, draw: random.Random) -> None:
    """Members got messages again, and a group began late."""
    delivery = draw.choice(run.of("deliver"))
    run.events.append({**delivery, "t": END})


def one_more_in_a_tail(run: SmallRun, draw: random.Random) -> None:
    """A node's log has more at its end than the others', which nobody was told of."""
    run.logs["n1"] = [*run.logs["n1"], Entry(3)]


def retained(run: SmallRun, draw: random.Random) -> None:
    """Old segments were removed, from all nodes."""
    run.removed = dict.fromkeys(NODES, draw.randint(1, 3))


def retained_unlike(run: SmallRun, draw: random.Random) -> None:
    """Old segments were removed, from some nodes sooner."""
    run.removed = {node: draw.randint(0, 2) for node in NODES}


INNOCENT: Final[tuple[Plant, ...]] = (
    concurrent_commits,
    reset_by_a_tool,
    disk_taken_away,
    overtaken_commit,
    asked_meanwhile,
    replaced_unawares,
    unanswered,
    delivered_again,
    one_more_in_a_tail,
    retained,
    retained_unlike,
    contents.said_by_nobody,
    made_again,
    sent_again,
    waiting.seen_after_faults,
    waiting.renewed,
    groups.lower_applied_last,
    groups.swallowed_commit,
    groups.acked_too_late,
    groups.noted_late,
    groups.popped_after_a_reset,
    groups.asked_meanwhile,
    groups.acknowledged_meanwhile,
    groups.given_back,
    groups.handed_out_again,
    groups.passed_over_after_a_reset,
    groups.passed_over_after_a_commit,
    lives.lives,
    lives.unnoted_lives,
    lives.stored_in_both_lives,
    lives.dropped_while_waiting,
    lives.set_forward,
    lives.closed_and_opened,
    lives.disabled_on_the_way,
    lives.group_made_again,
    subtle.voted_late,
    subtle.led_twice,
    subtle.lacks_what_comes_later,
    subtle.lacks_what_is_gone,
    subtle.within_clocks,
    subtle.fresh_to_the_last,
    *strange.NOTHING,
    *thin.NOTHING,
    *elsewhere.NOTHING,
    *batches.NOTHING,
    *more_batches.NOTHING,
    *times.NOTHING,
    *tools.NOTHING,
    *unseen.NOTHING,
)
