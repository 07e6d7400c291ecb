"""Faults planted in a small run, by the property that finds each.

A plant changes a run in place, where `draw` says. Faults name the property and the word that must
be among what is found; more may be, since one lie often contradicts several properties. What
only looks odd is in :mod:`mqspark.testing.innocents`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from dledger.checksum import crc32
from mqspark.testing.planting import Event
from mqspark.testing.plants import batch as batches
from mqspark.testing.plants import (
    batches as more_batches,
)
from mqspark.testing.plants import content as contents
from mqspark.testing.plants import elsewhere, strange, subtle, thin, times, tools, unseen, waiting
from mqspark.testing.plants import group as groups
from mqspark.testing.plants import life as lives
from mqspark.testing.plants import log as logs
from mqspark.testing.plants.content import acked, waiting_ack
from mqspark.testing.small_runs import (
    END_T,
    GROUP,
    HALF_TOPIC,
    MS,
    NODES,
    OUTPUTS,
    SCHEDULE_TOPIC,
    TOPIC,
    Entry,
    SmallRun,
    Stored,
)

Plant = Callable[[SmallRun, random.Random], None]
_SOON_NS: Final = 100


@dataclass(frozen=True)
class Fault:
    """A plant, and what must be found: a property, and its word for it."""

    number: int
    what: str
    plant: Plant

    @property
    def name(self) -> str:
        """For a person, and a test's id."""
        return f"{self.number} {self.plant.__name__}"


def lost(run: SmallRun, draw: random.Random) -> None:
    """An acknowledged message is in no log of one node."""
    run.drop(draw.choice(NODES), acked(run, draw)["id"])


def lost_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """A node has not what was acknowledged to wait."""
    run.drop("n2", waiting_ack(run, draw)["id"], topic=draw.choice([SCHEDULE_TOPIC, HALF_TOPIC]))
    run.drop("n2", run.of("ack", waiting=True)[0]["id"], topic=SCHEDULE_TOPIC)


def moved(run: SmallRun, draw: random.Random) -> None:
    """An acknowledgement names another position."""
    acked(run, draw)["position"] += 8


def moved_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """An acknowledgement of a message that waits names another position."""
    waiting_ack(run, draw)["position"] += 8


def hole_in_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A topic that no client tells of has lost a message, on all nodes."""
    _others(run, 0, 2)


def made_again(run: SmallRun, draw: random.Random) -> None:
    """A topic that no client tells of was deleted and made again."""
    _others(run, 0, 1)
    run.add(control=("delete_topic", {"topic": "Others", "now_ms": 1}))
    _others(run, 0, 1, 2)


def begun_anew(run: SmallRun, draw: random.Random) -> None:
    """A topic that no client tells of has a queue that begins at 0 again, and another topic was
    deleted."""
    _others(run, 0, 1)
    run.add(control=("delete_topic", {"topic": "Other", "now_ms": 1}))
    _others(run, 0, 1)


def _others(run: SmallRun, *offsets: int) -> None:
    found = run.stored(run.of("ack", waiting=True)[0]["id"], SCHEDULE_TOPIC)
    assert found is not None
    for offset in offsets:
        run.add(replace(found, topic="Others", id=f"{run.broker}-{offset}", offset=offset))


def phantom(run: SmallRun, draw: random.Random) -> None:
    """A consumer got what nobody sent."""
    draw.choice(run.of("deliver"))["id"] = f"{run.broker}-ghost"


def refused(run: SmallRun, draw: random.Random) -> None:
    """A send that was refused is stored and read."""
    ack = acked(run, draw)
    fail = {"kind": "fail", "t": ack["t"], "id": ack["id"], "definite": True, "client": "p"}
    run.events[run.events.index(ack)] = {**fail, "error": "refused"}


def contested(run: SmallRun, draw: random.Random) -> None:
    """Two messages were acknowledged at one offset."""
    first, second = run.of("ack", waiting=None, topic=TOPIC)[:2]
    second.update(queue_id=first["queue_id"], offset=first["offset"])


def overtaken(run: SmallRun, draw: random.Random) -> None:
    """A message was sent after a higher offset had been acknowledged."""
    acks = run.of("ack", waiting=None, topic=TOPIC)
    low = next(a for a in acks if any(_above(a, other) for other in acks))
    (send,) = run.of("send", id=low["id"])
    send["t"] = max(a["t"] for a in acks if _above(low, a)) + _SOON_NS


def skipped(run: SmallRun, draw: random.Random) -> None:
    """A group never got what is between two others."""
    place = _long_queue(run)
    deliveries = run.of("deliver", queue_id=place, group=GROUP)
    run.events.remove(draw.choice(deliveries[1:-1]))


def late(run: SmallRun, draw: random.Random) -> None:
    """A group got a message for the first time after a higher offset."""
    deliveries = run.of("deliver", queue_id=_long_queue(run), group=GROUP)
    draw.choice(deliveries[:-1])["t"] = deliveries[-1]["t"] + _SOON_NS


def vanished(run: SmallRun, draw: random.Random) -> None:
    """A message that was delivered is in no log."""
    message_id = draw.choice(run.of("deliver"))["id"]
    for node in NODES:
        run.drop(node, message_id)


def hole(run: SmallRun, draw: random.Random) -> None:
    """A queue's last message is an offset too far on."""
    run_end = run.next_offset(0)
    for node in NODES:
        entry = Entry(2, (Stored(_sent(run), TOPIC, 0, run_end + 1, b"x" * 8),))
        run.logs[node].append(entry)


def misplaced(run: SmallRun, draw: random.Random) -> None:
    """Two messages of a queue lie in the log against the order of their offsets."""
    end = run.next_offset(1)
    for node in NODES:
        pair = [Stored(_sent(run, k), TOPIC, 1, end + 1 - k, b"x" * 8) for k in range(2)]
        run.logs[node] += [Entry(2, (pair[0],)), Entry(2, (pair[1],))]


def committed_ahead(run: SmallRun, draw: random.Random) -> None:
    """A commit says more than what was delivered."""
    commit = draw.choice(run.of("commit", group=GROUP))
    commit["offset"] += 50


def committed_too_early(run: SmallRun, draw: random.Random) -> None:
    """A delivery came after the commit that covers it."""
    commit = run.of("commit")[-1]
    place = {name: commit[name] for name in ("group", "queue_id")}
    for delivery in run.of("deliver", offset=commit["offset"] - 1, **place):
        delivery["t"] = commit["t"] + _SOON_NS


def went_back(run: SmallRun, draw: random.Random) -> None:
    """A member's commit is lower than one of its own that had been answered before it began."""
    commit = draw.choice(run.of("commit"))
    later = {"began": commit["t"] + 10, "t": commit["t"] + 20, "offset": commit["offset"] - 1}
    run.events.append({**commit, **later})


def rewound(run: SmallRun, draw: random.Random) -> None:
    """A group's offset, read after a commit, is lower."""
    commit = draw.choice(run.of("commit"))
    later = {"began": commit["t"] + 10, "t": commit["t"] + 20, "offset": commit["offset"] - 1}
    run.events.append({**commit, **later, "kind": "group_offset"})


def duplicate(run: SmallRun, draw: random.Random) -> None:
    """A message is in a log twice."""
    ack = acked(run, draw)
    found = run.stored(ack["id"])
    assert found is not None
    for node in NODES:
        copy = replace(found, offset=run.next_offset(found.queue_id, node))
        run.logs[node].append(Entry(2, (copy,)))


def sent_again(run: SmallRun, draw: random.Random) -> None:
    """Innocent: an application has sent an output once more, and it is in the logs twice."""
    ack = draw.choice(run.of("ack", topic=OUTPUTS))
    found = run.stored(ack["id"], OUTPUTS)
    assert found is not None
    end = sum(m.topic == OUTPUTS for entry in run.logs["n0"] for m in entry.messages)
    for node in NODES:
        run.logs[node].append(Entry(2, (replace(found, offset=end),)))
    run.events.append({"kind": "again", "t": END_T - 1, "client": "w", "id": found.id})


def duplicate_of_a_repeat(run: SmallRun, draw: random.Random) -> None:
    """A message that was sent once more is in the logs three times."""
    sent_again(run, draw)
    found = run.logs["n0"][-1].messages[0]
    for node in NODES:
        run.logs[node].append(Entry(2, (replace(found, offset=found.offset + 1),)))


def duplicate_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """A message waits twice."""
    found = run.stored(run.of("ack", waiting=True)[0]["id"], SCHEDULE_TOPIC)
    assert found is not None
    for node in NODES:
        run.logs[node].append(Entry(2, (replace(found, offset=9),)))


def stale_end(run: SmallRun, draw: random.Random) -> None:
    """A queue's end was told to be where a message had been acknowledged before."""
    ack = acked(run, draw)
    look = {"broker": run.broker, "topic": TOPIC, "queue_id": ack["queue_id"]}
    times = {"began": ack["t"] + 10, "t": ack["t"] + 20}
    run.events.append({"kind": "queue_end", "offset": ack["offset"], **look, **times})


FAULTS: Final = tuple(
    Fault(number, what, plant)
    for number, what, plant in (
        (1, "lost", lost),
        (1, "lost", lost_while_waiting),
        (1, "moved", moved),
        (1, "moved", moved_while_waiting),
        (1, "altered", contents.altered),
        (1, "altered", contents.altered_while_waiting),
        (1, "altered", contents.other_keys),
        (1, "altered", contents.other_keys_while_waiting),
        (1, "altered", contents.part_altered),
        (1, "lost", contents.part_taken),
        (1, "lost", contents.part_lost),
        (2, "damaged", contents.part_altered_unacknowledged),
        (2, "altered", contents.altered_on_the_way),
        (2, "altered", contents.other_keys_on_the_way),
        (2, "altered", contents.other_keys_unacknowledged),
        (2, "phantom", phantom),
        (2, "refused", refused),
        (3, "contested", contested),
        (4, "overtaken", overtaken),
        (4, "skipped", skipped),
        (4, "late", late),
        (4, "vanished", vanished),
        (4, "hole", hole),
        (4, "misplaced", misplaced),
        (4, "hole", hole_in_another_topic),
        (4, "misplaced", begun_anew),
        (5, "changed", logs.changed),
        (5, "changed", logs.other_term),
        (5, "disordered", logs.fallen_term),
        (5, "disordered", logs.left_out),
        (5, "disordered", logs.fallen_in_a_tail),
        (6, "two leaders", logs.two_leaders),
        (6, "two votes", logs.two_votes),
        (6, "forgotten", logs.forgotten_term),
        (7, "incomplete", logs.empty_leader),
        (8, "ahead", committed_ahead),
        (8, "ahead", committed_too_early),
        (8, "back", went_back),
        (8, "back", rewound),
        (8, "back", groups.lower_applied_first),
        (8, "unlogged", groups.committed_nowhere),
        (8, "unlogged", groups.committed_by_others),
        (9, "duplicate", duplicate),
        (9, "duplicate", duplicate_of_a_repeat),
        (9, "duplicate", duplicate_while_waiting),
        (10, "visible", waiting.visible),
        (10, "visible", waiting.delivered_though_rolled_back),
        (10, "hidden", waiting.hidden),
        (10, "open", waiting.left_open),
        (10, "late", waiting.committed_late),
        (11, "early", waiting.early),
        (11, "late", waiting.delayed_too_long),
        (11, "missing", waiting.never_came),
        (11, "expired", groups.outlived),
        (12, "stale", stale_end),
        (13, "incomplete", logs.truncated),
        (14, "missing", groups.without_output),
        (14, "untaken", groups.untaken),
        (15, "again", groups.came_again),
        (15, "back", groups.popped_back),
        (15, "passed", groups.passed_unseen),
        (15, "passed", groups.passed_first),
        (15, "buried twice", groups.buried_twice),
        (15, "unburied", groups.unburied),
        (15, "unburied", groups.buried_for_others),
        (15, "unlogged", groups.acked_nowhere),
        (15, "unlogged", groups.acked_by_another),
        (16, "passed over", groups.passed_over),
        (16, "misplaced", groups.misplaced),
        (3, "contested", lives.contested_in_a_life),
        (3, "contested", lives.begun_anew),
        (4, "hole", lives.hole_in_a_life),
        (4, "skipped", lives.skipped_in_a_life),
        (4, "skipped", lives.skipped_beside_a_reset),
        (8, "ahead", lives.committed_beside_a_reset),
        (8, "back", lives.back_in_a_life),
        (12, "stale", lives.stale_in_a_life),
        (1, "lost", lives.lost_in_a_life),
        (11, "missing", lives.forgotten_while_waiting),
        (17, "admitted", lives.admitted),
        (17, "shown", lives.shown),
        (17, "served", lives.served),
        (17, "revived", lives.revived),
        (17, "unlogged", lives.act_nowhere),
        (17, "unlogged", lives.another_permission),
        (4, "vanished", lives.vanished_before_lives),
        (17, "unasked", lives.unasked),
        (3, "contested", subtle.contested_by_a_read),
        (3, "contested", subtle.contested_on_a_node),
        (3, "contested", subtle.contested_unacknowledged),
        (4, "hole", subtle.far_away),
        (6, "two leaders", subtle.led_after_a_restart),
        (6, "two votes", subtle.voted_with_a_new_disk),
        (7, "incomplete", subtle.lacks_the_last),
        (7, "incomplete", subtle.lacks_what_is_kept),
        (5, "changed", subtle.lacks_what_is_doubtful),
        (5, "changed", subtle.changed_in_what_is_gone),
        (13, "incomplete", subtle.shorter_in_what_is_gone),
        (9, "duplicate", subtle.duplicate_in_a_tail),
        (9, "duplicate", subtle.duplicate_output),
        (10, "visible", subtle.visible_in_a_tail),
        (11, "early", subtle.a_little_early),
        (1, "lost", subtle.lost_again_while_waiting),
        (12, "stale", subtle.stale_zero),
        (13, "incomplete", subtle.without_its_last),
        (14, "missing", subtle.output_of_nobody),
        (15, "again", subtle.settled_by_an_earlier),
        (14, "missing", subtle.contested_with_what_is_gone),
        (16, "misplaced", subtle.priority_above_the_last),
        *strange.FOUND,
        *thin.FOUND,
        *elsewhere.FOUND,
        *batches.FOUND,
        *more_batches.FOUND,
        *times.FOUND,
        *tools.FOUND,
        *unseen.FOUND,
    )
)


def _above(low: Event, high: Event) -> bool:
    """Whether the second acknowledgement is of a higher offset of the same queue."""
    same = (low["queue_id"], low["topic"]) == (high["queue_id"], high["topic"])
    return same and high["offset"] > low["offset"]


def _long_queue(run: SmallRun) -> int:
    """The queue of which the group read most."""
    return max((0, 1), key=lambda queue: len(run.of("deliver", queue_id=queue, group=GROUP)))


def _sent(run: SmallRun, number: int = 0) -> str:
    """Send another message, and nobody hears of it."""
    message_id = f"{run.broker}-extra{number}"
    if not run.of("send", id=message_id):
        crc = crc32(b"x" * 8)
        event = {"kind": "send", "t": MS, "client": "p", "id": message_id, "topic": TOPIC}
        run.events.append({**event, "crc": crc, "size": 8})
    return message_id
