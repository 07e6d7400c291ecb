"""Faults planted in the files that a broker makes from its log: queues, key index, snapshot.

Each plant changes the files of a store in place. A lying disk leaves the checks of units as they
were; a lying broker makes them anew.
"""

from __future__ import annotations

import random
from typing import Final

from dledger.log.head import LogHead, encode_head
from dledger.log.segments.segment import segment_path
from mqspark.source.planning import find_replicas
from mqspark.testing.declaring import Plants
from mqspark.testing.derived.served import Served, overwrite, turn_a_bit
from mqspark.testing.reference.derived import FIRST_FILE, KEY, SNAPSHOT, UNIT
from mqspark.testing.rewriting import StoredMessage
from mqspark.testing.small_runs import OUTPUTS, QUEUES, SCHEDULE_TOPIC, TOPIC

_FAR: Final = 2**40
_OLD_FORMAT: Final = 1
PLANTS: Final = Plants[Served]()
_fault: Final = PLANTS.fault(18, "derived")
#: A topic of which a message stands right behind one of the audited topic.
BESIDE: Final = "Beside"


def _bit_of_a_unit(served: Served, draw: random.Random, first: int, end: int) -> None:
    queue = served.any_queue(draw)
    at = UNIT.size * draw.randrange(queue.end)
    turn_a_bit(queue.path, draw, at + first, at + end)


@_fault
def bit_of_a_position(served: Served, draw: random.Random) -> None:
    """A bit of where a message is has turned."""
    _bit_of_a_unit(served, draw, 0, 8)


@_fault
def bit_of_a_size(served: Served, draw: random.Random) -> None:
    """A bit of how long a message is has turned."""
    _bit_of_a_unit(served, draw, 8, 12)


@_fault
def bit_of_a_check(served: Served, draw: random.Random) -> None:
    """A bit of a unit's check has turned."""
    _bit_of_a_unit(served, draw, 12, 16)


@_fault
def bit_of_a_life(served: Served, draw: random.Random) -> None:
    """A bit of how long a message lives, of its tag's code or of its time has turned."""
    _bit_of_a_unit(served, draw, 16, 32)


@_fault
def zeroed(served: Served, draw: random.Random) -> None:
    """A unit is all zeros, as on a disk that lost a page."""
    queue = served.any_queue(draw)
    overwrite(queue.path, UNIT.size * draw.randrange(queue.end), bytes(UNIT.size))


@_fault
def cut_behind_a_unit(served: Served, draw: random.Random) -> None:
    """A file of a queue ends before the last unit that the snapshot claims."""
    queue = served.any_queue(draw, 2)
    raw = queue.path.read_bytes()
    queue.path.write_bytes(raw[: UNIT.size * draw.randrange(1, queue.end)])


@_fault
def cut_within_a_unit(served: Served, draw: random.Random) -> None:
    """A file of a queue ends amid the last unit."""
    queue = served.any_queue(draw)
    raw = queue.path.read_bytes()
    queue.path.write_bytes(raw[: UNIT.size * queue.end - draw.randrange(1, UNIT.size)])


@_fault
def emptied(served: Served, draw: random.Random) -> None:
    """A file of a queue has no byte."""
    served.any_queue(draw).path.write_bytes(b"")


@_fault
def gone(served: Served, draw: random.Random) -> None:
    """A file of a queue is not there."""
    served.any_queue(draw).path.unlink()


@_fault
def folder_of_a_queue_gone(served: Served, draw: random.Random) -> None:
    """A queue has no folder."""
    queue = served.any_queue(draw)
    queue.path.unlink()
    queue.path.parent.rmdir()


@_fault
def folder_in_its_place(served: Served, draw: random.Random) -> None:
    """Where a queue's file should be there is a folder."""
    queue = served.any_queue(draw)
    queue.path.unlink()
    queue.path.mkdir()


@_fault
def traded_as_they_are(served: Served, draw: random.Random) -> None:
    """Two units stand in each other's place, each with the check of its own."""
    queue = served.any_queue(draw, 2)
    raw = queue.path.read_bytes()
    one = UNIT.size * draw.randrange(queue.end - 1)
    middle, end = one + UNIT.size, one + 2 * UNIT.size
    queue.path.write_bytes(raw[:one] + raw[middle:end] + raw[one:middle] + raw[end:])


@_fault
def traded(served: Served, draw: random.Random) -> None:
    """A broker has put two messages of a queue in each other's place."""
    queue = served.any_queue(draw, 2)
    at = draw.randrange(queue.end - 1)
    one, other = queue.unit(at), queue.unit(at + 1)
    queue.put(at, other)
    queue.put(at + 1, one)


@_fault
def left_out(served: Served, draw: random.Random) -> None:
    """A broker has left out a message, so that all behind it are one place too low."""
    queue = served.any_queue(draw, 2)
    for number in range(draw.randrange(queue.end - 1), queue.end - 1):
        queue.put(number, queue.unit(number + 1))


@_fault
def twice(served: Served, draw: random.Random) -> None:
    """A broker has put a message into its queue twice, so that all behind it are too high."""
    queue = served.any_queue(draw, 2)
    for number in range(queue.end - 1, draw.randrange(1, queue.end) - 1, -1):
        queue.put(number, queue.unit(number - 1))


@_fault
def of_another_queue_as_it_is(served: Served, draw: random.Random) -> None:
    """A unit of another queue stands there, with the check of its own file."""
    queue, other = served.queue(TOPIC, 0), served.queue(OUTPUTS, 10)
    raw = other.path.read_bytes()[: UNIT.size]
    overwrite(queue.path, 0, raw)


@_fault
def of_another_queue(served: Served, draw: random.Random) -> None:
    """A broker has put a message of another queue of the topic in a place."""
    queue, other = served.queue(TOPIC, 0), served.queue(TOPIC, 1)
    at = draw.randrange(min(queue.end, other.end))
    queue.put(at, other.unit(at))


@_fault
def of_another_topic(served: Served, draw: random.Random) -> None:
    """A broker has put a message of another topic, at the same offset of the same queue, there."""
    served.queue(TOPIC, 0).put(0, served.queue(SCHEDULE_TOPIC, 0).unit(0))


@_fault
def of_its_neighbour(served: Served, draw: random.Random) -> None:
    """A broker has put the message behind one, of another topic, in the place behind that one's."""
    messages = served.messages(BESIDE, 0)
    beside = next(m for m in messages if _before(served, m))
    queue = served.queue(TOPIC, 0)
    was = queue.unit(beside.queue_offset)
    queue.put(beside.queue_offset, (beside.position, len(beside.raw), *was[2:]))


def _before(served: Served, message: StoredMessage) -> bool:
    """Whether a message of the audited topic, one offset lower, ends where this one begins."""
    return any(
        m.position + len(m.raw) == message.position and m.queue_offset + 1 == message.queue_offset
        for m in served.messages(TOPIC, message.queue_id)
    )


@_fault
def too_long(served: Served, draw: random.Random) -> None:
    """A broker has noted that a message is longer than it is."""
    queue = served.any_queue(draw)
    queue.change(draw.randrange(queue.end), size=1)


@_fault
def too_short(served: Served, draw: random.Random) -> None:
    """A broker has noted that a message is shorter than it is."""
    queue = served.any_queue(draw)
    queue.change(draw.randrange(queue.end), size=-1)


@_fault
def of_no_size(served: Served, draw: random.Random) -> None:
    """A broker has noted that a message has no byte."""
    queue = served.any_queue(draw)
    number = draw.randrange(queue.end)
    queue.change(number, size=-queue.unit(number)[1])


@_fault
def into_a_message(served: Served, draw: random.Random) -> None:
    """A unit points into a message."""
    queue = served.any_queue(draw)
    queue.change(draw.randrange(queue.end), position=8)


@_fault
def before_a_message(served: Served, draw: random.Random) -> None:
    """A unit points to what stands before a message."""
    queue = served.any_queue(draw)
    queue.change(draw.randrange(queue.end), position=-8)


@_fault
def behind_the_log(served: Served, draw: random.Random) -> None:
    """A unit points behind the end of the log."""
    queue = served.any_queue(draw)
    queue.change(draw.randrange(queue.end), position=_FAR)


@_fault
def beyond_all_logs(served: Served, draw: random.Random) -> None:
    """A unit points to where no log comes."""
    queue = served.any_queue(draw)
    queue.change(draw.randrange(queue.end), position=2**63)


@_fault
def bit_of_a_hash(served: Served, draw: random.Random) -> None:
    """A bit of a key's hash has turned."""
    at = KEY.size * draw.randrange(served.claims["keys"][1])
    turn_a_bit(served.index, draw, at, at + 8)


@_fault
def bit_of_a_keys_position(served: Served, draw: random.Random) -> None:
    """A bit of where a key's message is, or of the key's check, has turned."""
    at = KEY.size * draw.randrange(served.claims["keys"][1])
    turn_a_bit(served.index, draw, at + 8, at + 16)


@_fault
def key_zeroed(served: Served, draw: random.Random) -> None:
    """A key is all zeros."""
    overwrite(served.index, KEY.size * draw.randrange(served.claims["keys"][1]), bytes(KEY.size))


@_fault
def key_into_a_message(served: Served, draw: random.Random) -> None:
    """A broker has noted a key as that of a place within a message."""
    served.set_key(draw.randrange(served.claims["keys"][1]), served.log[1].position + 56)


@_fault
def key_behind_the_log(served: Served, draw: random.Random) -> None:
    """A broker has noted a key as that of a place behind the log."""
    served.set_key(draw.randrange(served.claims["keys"][1]), _FAR)


@_fault
def key_of_a_change(served: Served, draw: random.Random) -> None:
    """A broker has noted a key as that of an entry without messages."""
    empty = draw.choice([entry for entry in served.log if not entry.messages])
    served.set_key(draw.randrange(served.claims["keys"][1]), empty.position + 48)


@_fault
def keys_cut(served: Served, draw: random.Random) -> None:
    """The file of keys ends too early."""
    raw = served.index.read_bytes()
    served.index.write_bytes(raw[: draw.randrange(1, KEY.size * served.claims["keys"][1])])


@_fault
def keys_gone(served: Served, draw: random.Random) -> None:
    """The file of keys is gone."""
    served.index.unlink()


@_fault
def key_sorted_from_another(served: Served, draw: random.Random) -> None:
    """A sorted file of keys has the hash and the position of two units in one."""
    keys_sorted(served, draw)
    path = served.index.with_name(f"{FIRST_FILE}.sorted")
    raw = path.read_bytes()
    hashes = [raw[at : at + 8] for at in range(0, len(raw) // 2, 8)]
    assert hashes[0] != hashes[-1]
    path.write_bytes(b"".join([hashes[-1], *hashes[1:-1], hashes[0]]) + raw[len(raw) // 2 :])


@_fault
def snapshot_cut(served: Served, draw: random.Random) -> None:
    """The snapshot ends too early."""
    path = served.store / SNAPSHOT
    raw = path.read_bytes()
    path.write_bytes(raw[: draw.randrange(len(raw))])


@_fault
def bit_of_the_snapshot(served: Served, draw: random.Random) -> None:
    """A bit of the snapshot has turned."""
    path = served.store / SNAPSHOT
    turn_a_bit(path, draw, 0, path.stat().st_size)


@_fault
def longer_snapshot(served: Served, draw: random.Random) -> None:
    """Bytes stand behind the snapshot."""
    path = served.store / SNAPSHOT
    path.write_bytes(path.read_bytes() + b"\0")


@_fault
def folder_for_a_snapshot(served: Served, draw: random.Random) -> None:
    """Where the snapshot should be there is a folder."""
    (served.store / SNAPSHOT).unlink()
    (served.store / SNAPSHOT).mkdir()


@_fault
def ahead_of_the_log(served: Served, draw: random.Random) -> None:
    """A snapshot has entries that its log has not."""
    served.claim(applied_index=served.log[-1].index + draw.randint(1, 3))


@_fault
def claims_more(served: Served, draw: random.Random) -> None:
    """A snapshot claims more messages of a queue than there are."""
    queue_id = draw.randrange(QUEUES)
    served.claim_of_queue(TOPIC, queue_id, served.queue(TOPIC, queue_id).end + draw.randint(1, 3))


@_fault
def claims_another_queue(served: Served, draw: random.Random) -> None:
    """A snapshot claims messages of a queue that has none."""
    served.claim_of_queue(TOPIC, QUEUES, 2)


@_fault
def claims_another_topic(served: Served, draw: random.Random) -> None:
    """A snapshot claims messages of a topic that there is not."""
    served.claim_of_queue("Nowhere", 0, 2)


@_fault
def claims_another_life(served: Served, draw: random.Random) -> None:
    """A snapshot claims the queues of a topic that was made by another entry."""
    made, ends = served.claims["queues"][TOPIC]
    served.claim(queues=served.claims["queues"] | {TOPIC: (made + 1, ends)})


@_fault
def claims_no_name(served: Served, draw: random.Random) -> None:
    """A snapshot claims a topic of a name that none has."""
    served.claim_of_queue("a/b", 0, 2)


@_fault
def claims_backwards(served: Served, draw: random.Random) -> None:
    """A snapshot claims a queue that begins behind its end."""
    queue = served.queue(TOPIC, 0)
    served.claim(begins={TOPIC: {0: queue.end + 1}})


@_fault
def claims_more_keys(served: Served, draw: random.Random) -> None:
    """A snapshot claims more keys than there are."""
    first, end = served.claims["keys"]
    served.claim(keys=(first, end + draw.randint(1, 3)))


@_fault
def claims_what_is_removed(served: Served, draw: random.Random) -> None:
    """The log has lost its first segment by retention, and the snapshot claims what it had."""
    _trim(served)


def _trim(served: Served) -> int:
    """Remove the log's first segment. Where the log begins now."""
    (replica,) = find_replicas([str(served.store)])
    size = replica.segment_bytes
    kept = next(k for k, entry in enumerate(served.log) if entry.position >= size)
    before, first = served.log[kept - 1 : kept + 1]
    segment_path(served.store / "log", 0).unlink()
    head = LogHead(size, first.index, before.chain_crc)
    (served.store / "log" / "head").write_bytes(encode_head(head))
    return size


@PLANTS.innocent
def behind_what_is_claimed(served: Served, draw: random.Random) -> None:
    """Files have bytes behind what the snapshot claims; the next start cuts them off."""
    for path in (served.index, served.any_queue(draw).path):
        path.write_bytes(path.read_bytes() + draw.randbytes(100))


@PLANTS.innocent
def claims_less(served: Served, draw: random.Random) -> None:
    """The snapshot is older than the last units, and these are torn."""
    queue = served.any_queue(draw, 2)
    served.claim_of_queue(TOPIC, int(queue.path.parent.name), queue.end - 1)
    overwrite(queue.path, UNIT.size * (queue.end - 1), draw.randbytes(UNIT.size))


@PLANTS.innocent
def without_a_snapshot(served: Served, draw: random.Random) -> None:
    """A store without a snapshot claims nothing."""
    served.any_queue(draw).path.write_bytes(b"x")
    (served.store / SNAPSHOT).unlink()


@PLANTS.innocent
def of_another_version(served: Served, draw: random.Random) -> None:
    """A broker of another version has other files."""
    bit_of_a_position(served, draw)
    served.claim(units_format=_OLD_FORMAT)


@PLANTS.innocent
def left_over(served: Served, draw: random.Random) -> None:
    """A file of a topic that was deleted is left over."""
    folder = served.store / "queues" / "Deleted.3" / "0"
    folder.mkdir(parents=True)
    (folder / FIRST_FILE).write_bytes(draw.randbytes(70))


@PLANTS.innocent
def half_a_snapshot(served: Served, draw: random.Random) -> None:
    """A snapshot was being written when the broker ended."""
    (served.store / f"{SNAPSHOT}.new").write_bytes(draw.randbytes(30))


@PLANTS.innocent
def keys_sorted(served: Served, draw: random.Random) -> None:
    """The keys are in a sorted file."""
    count = served.claims["keys"][1]
    raw = served.index.read_bytes()
    units = sorted(raw[at : at + KEY.size] for at in range(0, count * KEY.size, KEY.size))
    units.sort(key=lambda unit: KEY.unpack(unit)[0])
    halves = [unit[:8] for unit in units] + [unit[8:] for unit in units]
    served.index.with_name(f"{FIRST_FILE}.sorted").write_bytes(b"".join(halves))
    served.index.unlink()


@PLANTS.innocent
def begins_later(served: Served, draw: random.Random) -> None:
    """A queue begins behind its first message, which is not there any more."""
    queue = served.any_queue(draw, 2)
    overwrite(queue.path, 0, bytes(UNIT.size))
    served.claim(begins={TOPIC: {int(queue.path.parent.name): 1}})


@PLANTS.innocent
def trimmed(served: Served, draw: random.Random) -> None:
    """Retention removed the first segment, and queues begin behind it; keys may not."""
    begin = _trim(served)
    begins: dict[str, dict[int, int]] = {}
    for topic, (_, ends) in served.claims["queues"].items():
        for queue_id, end in ends.items():
            queue = served.queue(topic, queue_id)
            units = (number for number in range(end) if queue.unit(number)[0] >= begin)
            begins.setdefault(topic, {})[queue_id] = next(units, end)
    served.claim(begins=begins)
