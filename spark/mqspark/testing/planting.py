"""Plants faults in copies of replicas and histories, to prove that the judges see them.

Works on the directories of real brokers as well as on synthetic ones: a fault is planted by
reading a replica's log, changing it, and writing it again. There are two kinds of liars:

- A lying disk changes bytes and leaves the CRCs as they were (`recompute=False`): any reader that
  checks CRCs sees it.
- A lying broker writes a consistent log of something else (`recompute=True`): records, positions
  and every CRC of the chain are made anew. Only the other replicas and the clients' history tell.

Never plant in the only copy of something.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dledger.errors import ConfigError
from dledger.log.entry import HEADER_BYTES
from dledger.log.segments.segment import segment_path
from mqspark.source.planning import Replica, find_replicas
from mqspark.testing.rewriting import StoredMessage, read_log, rewrite

#: An event of a history; which values it has depends on its kind.
Event = dict[str, Any]


def find_message(replica: Replica, message_id: str) -> StoredMessage:
    """The first record of that id. Raises ConfigError if there is none."""
    for entry in read_log(replica):
        for message in entry.messages:
            if message.message_id == message_id:
                return message
    raise ConfigError(f"{replica.directory} has no message {message_id}")


def patch(replica: Replica, position: int, data: bytes) -> None:
    """Overwrite bytes of the log, as a bad disk would: no CRC changes."""
    base = position // replica.segment_bytes * replica.segment_bytes
    with segment_path(Path(replica.directory) / "log", base).open("r+b") as file:
        file.seek(position - base)
        file.write(data)


def flip(replica: Replica, message_id: str, *, recompute: bool) -> None:
    """Change one bit of a message's body."""
    if recompute:
        rewrite(
            replica,
            lambda m: [m.with_flipped_body(crc=True) if m.message_id == message_id else m],
        )
        return
    message = find_message(replica, message_id)
    patch(replica, message.position, message.with_flipped_body(crc=False).raw)


def remove(replica: Replica, message_id: str, *, recompute: bool) -> None:
    """Take a message out: cut it from the log, or leave zeros where it was."""
    if recompute:
        rewrite(replica, lambda m: [] if m.message_id == message_id else [m])
        return
    message = find_message(replica, message_id)
    patch(replica, message.position, bytes(len(message.raw)))


def replace_message(replica: Replica, message_id: str, other_id: str, *, recompute: bool) -> None:
    """Put a message that nobody sent in the place of one."""
    if recompute:
        rewrite(replica, lambda m: [m.with_id(other_id) if m.message_id == message_id else m])
        return
    message = find_message(replica, message_id)
    patch(replica, message.position, message.with_id(other_id).raw)


def swap(replica: Replica, first_id: str, second_id: str, *, recompute: bool) -> None:
    """Swap the places of two messages; records of unequal size need `recompute`."""
    first, second = find_message(replica, first_id), find_message(replica, second_id)
    if recompute:
        trade = {
            first_id: second.moved_to(first.queue_id, first.queue_offset),
            second_id: first.moved_to(second.queue_id, second.queue_offset),
        }
        rewrite(replica, lambda m: [trade.get(m.message_id or "", m)])
        return
    if len(first.raw) != len(second.raw):
        raise ConfigError(f"{first_id} and {second_id} have records of different sizes")
    patch(replica, first.position, second.raw)
    patch(replica, second.position, first.raw)


def duplicate(replica: Replica, message_id: str) -> None:
    """Append a second copy of a message, at the end of its queue."""
    message = find_message(replica, message_id)
    end = _queue_end(replica, message)
    rewrite(replica, _unchanged, append=[message.moved_to(message.queue_id, end)])


def phantom(replica: Replica, message_id: str, other_id: str) -> None:
    """Append a message that nobody sent, made like `message_id`."""
    message = find_message(replica, message_id).with_id(other_id)
    end = _queue_end(replica, message)
    rewrite(replica, _unchanged, append=[message.moved_to(message.queue_id, end)])


def truncate(replica: Replica, entries: int, *, shorten: bool) -> None:
    """Lose the last entries, the first of them in the middle.

    With `shorten` the file ends there; without, zeros follow, as after a torn write.
    """
    first = read_log(replica)[-entries]
    middle = first.position + HEADER_BYTES + len(first.body) // 2
    base = middle // replica.segment_bytes * replica.segment_bytes
    folder = Path(replica.directory) / "log"
    for later in replica.segments:
        if later > base:
            segment_path(folder, later).unlink()
    with segment_path(folder, base).open("r+b") as file:
        file.truncate(middle - base)
        if not shorten:
            file.truncate(replica.segment_bytes)


def edit_history(history: Path, edit: Callable[[Event], Sequence[Event]]) -> None:
    """Put what `edit` gives in the place of each event of a history directory.

    Events are written in the order of their times: a writer's clock is monotonic.
    """
    for path in history.glob("*.jsonl"):
        events = [new for line in path.read_text().splitlines() for new in edit(json.loads(line))]
        events.sort(key=lambda event: event["t"])
        path.write_text("".join(json.dumps(event) + "\n" for event in events))


def forge_ack(history: Path, like_id: str, message_id: str) -> None:
    """Add a send and an acknowledgement that never happened to the history.

    Both are like those of `like_id`, at the next free offset of its queue.
    """
    offsets: dict[object, int] = {}
    forged: list[Event] = []

    def note(event: Event) -> Sequence[Event]:
        if event["kind"] == "ack":
            queue = (event["topic"], event["queue_id"])
            offsets[queue] = max(offsets.get(queue, 0), int(str(event["offset"])))
        if event["kind"] in {"send", "ack"} and event["id"] == like_id:
            forged.append({**event, "id": message_id})
        return [event]

    edit_history(history, note)
    for event in forged:
        if event["kind"] == "ack":
            event["offset"] = 1 + offsets[event["topic"], event["queue_id"]]
            event["position"] = 1 + int(str(event["position"]))
    with (history / "forged.jsonl").open("w") as file:
        file.writelines(json.dumps(event) + "\n" for event in forged)


def replicas_of(stores: Iterable[Path]) -> list[Replica]:
    """The replicas in these directories."""
    return find_replicas([str(store) for store in stores])


def _unchanged(message: StoredMessage) -> Sequence[StoredMessage]:
    return [message]


def _queue_end(replica: Replica, like: StoredMessage) -> int:
    """The first free offset of the queue that `like` is in."""
    return 1 + max(
        message.queue_offset
        for entry in read_log(replica)
        for message in entry.messages
        if (message.topic, message.queue_id) == (like.topic, like.queue_id)
    )
