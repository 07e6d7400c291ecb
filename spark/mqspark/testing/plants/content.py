"""Faults planted in the contents of messages: bodies, their parts, and what senders say beside
them."""

from __future__ import annotations

import random
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.planting import Event
from mqspark.testing.small_runs import NODES, PARTS, TOPIC, SmallRun

PLANTS: Final = Plants[SmallRun]()


@PLANTS.fault(1, "altered")
def altered(run: SmallRun, draw: random.Random) -> None:
    """A log has another body than was sent."""
    run.change(draw.choice(NODES), acked(run, draw)["id"], body=b"another!")


@PLANTS.fault(1, "altered")
def altered_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """A message was changed where it waits, and where it came to."""
    message_id = waiting_ack(run, draw)["id"]
    run.change_all(message_id, body=b"another!")


@PLANTS.fault(2, "altered")
def altered_on_the_way(run: SmallRun, draw: random.Random) -> None:
    """A consumer got another body."""
    draw.choice(run.of("deliver"))["crc"] ^= 1


@PLANTS.fault(1, "altered")
def other_keys(run: SmallRun, draw: random.Random) -> None:
    """All logs have other keys than were sent, with the body that was."""
    message_id = acked(run, draw)["id"]
    run.change_all(message_id, keys="one two three")


@PLANTS.fault(1, "altered")
def other_keys_while_waiting(run: SmallRun, draw: random.Random) -> None:
    """A message has other keys where it waits, and where it came to."""
    message_id = waiting_ack(run, draw)["id"]
    run.change_all(message_id, keys="one twx")


@PLANTS.fault(2, "altered")
def other_keys_unacknowledged(run: SmallRun, draw: random.Random) -> None:
    """A message that was not acknowledged has other keys on a node."""
    ack = acked(run, draw)
    run.events.remove(ack)
    run.change("n1", ack["id"], keys="one twx")


@PLANTS.fault(2, "altered")
def other_keys_on_the_way(run: SmallRun, draw: random.Random) -> None:
    """A consumer got other properties than were sent."""
    draw.choice(run.of("deliver"))["properties"] ^= 1


@PLANTS.innocent
def said_by_nobody(run: SmallRun, draw: random.Random) -> None:
    """An older client said nothing of what else it sent."""
    send = draw.choice(run.of("send"))
    del send["properties"]


@PLANTS.fault(1, "altered")
def part_altered(run: SmallRun, draw: random.Random) -> None:
    """A part of a large body is another on all nodes, under right checksums."""
    run.change_all(f"{run.large().id}-part0", body=b"xyz")


@PLANTS.fault(1, "lost")
def part_taken(run: SmallRun, draw: random.Random) -> None:
    """A node has a part of another body in a part's place."""
    run.change("n2", f"{run.large().id}-part1", part_of=f"{run.broker}-9999")


@PLANTS.fault(1, "lost")
def part_lost(run: SmallRun, draw: random.Random) -> None:
    """All nodes have lost a part of a large body."""
    for node in NODES:
        run.drop(node, f"{run.large().id}-part{draw.randrange(3)}", PARTS)


@PLANTS.fault(2, "damaged")
def part_altered_unacknowledged(run: SmallRun, draw: random.Random) -> None:
    """A part is another one, of a body that is stored and whose sender got no answer."""
    part_altered(run, draw)
    run.events.remove(run.of("ack", id=run.large().id)[0])


def acked(run: SmallRun, draw: random.Random) -> Event:
    """An acknowledgement of a message in its topic."""
    return draw.choice(run.of("ack", waiting=None, topic=TOPIC))


def waiting_ack(run: SmallRun, draw: random.Random) -> Event:
    """An acknowledgement of a message that waits."""
    return draw.choice(run.of("ack", waiting=True))
