"""Faults of messages that wait for their time or transaction: early, late, hidden, repeated.

What `_Waiting` does happens behind the run.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from mqspark.testing.declaring import Plants
from mqspark.testing.plants.life import BODY, Story
from mqspark.testing.small_runs import (
    END_T,
    GROUP,
    HALF_TOPIC,
    MS,
    NODES,
    OP_TOPIC,
    OUTPUTS,
    OUTPUTS_QUEUE,
    POPPERS,
    SCHEDULE_TOPIC,
    TOPIC,
    Entry,
    SmallRun,
    Stored,
)

PLANTS: Final = Plants[SmallRun]()

_S: Final = 1_000 * MS


@PLANTS.fault(10, "visible")
def visible(run: SmallRun, draw: random.Random) -> None:
    """A transaction that was rolled back is in its topic, on one node only."""
    message_id = draw.choice(run.of("send", transaction="rollback"))["id"]
    half = run.stored(message_id, HALF_TOPIC)
    end = run.next_offset(0)
    run.logs["n1"].append(Entry(2, (replace(half, topic=TOPIC, queue_id=0, offset=end),)))


@PLANTS.fault(10, "visible")
def delivered_though_rolled_back(run: SmallRun, draw: random.Random) -> None:
    """A consumer got what was rolled back."""
    send = draw.choice(run.of("send", transaction="rollback"))
    draw.choice(run.of("deliver")).update(id=send["id"], crc=send["crc"])


@PLANTS.fault(10, "hidden")
def hidden(run: SmallRun, draw: random.Random) -> None:
    """A committed transaction is not in its topic on one node."""
    run.drop("n2", run.of("resolve", transaction="commit")[0]["id"])


@PLANTS.fault(10, "open")
def left_open(run: SmallRun, draw: random.Random) -> None:
    """A transaction to be committed never came into its topic."""
    _never(run, run.of("send", transaction="commit")[1]["id"])


@PLANTS.fault(10, "late")
def committed_late(run: SmallRun, draw: random.Random) -> None:
    """A transaction to be committed was seen minutes later."""
    _much_later(run, run.of("send", transaction="commit")[1]["id"])


@PLANTS.fault(11, "early")
def early(run: SmallRun, draw: random.Random) -> None:
    """A delayed message came before its time."""
    send = draw.choice([send for send in run.of("send") if "due" in send])
    (delivery,) = run.of("deliver", id=send["id"], group=GROUP)
    send["due"] = delivery["t"] + 10 * MS


@PLANTS.fault(11, "late")
def delayed_too_long(run: SmallRun, draw: random.Random) -> None:
    """A delayed message came minutes after its time."""
    _much_later(run, draw.choice([send for send in run.of("send") if "due" in send])["id"])


@PLANTS.fault(11, "missing")
def never_came(run: SmallRun, draw: random.Random) -> None:
    """A delayed message never came into its topic."""
    _never(run, draw.choice([send for send in run.of("send") if "due" in send])["id"])


@PLANTS.innocent
def seen_after_faults(run: SmallRun, draw: random.Random) -> None:
    """A delayed message came minutes late, right after a node was healed."""
    message_id = next(send["id"] for send in run.of("send") if "due" in send)
    deliveries = run.of("deliver", id=message_id)
    _much_later(run, message_id)
    healed = min(delivery["t"] for delivery in deliveries) - 1
    run.note("fault", healed, fault="restart", node="n0")


@PLANTS.innocent
def renewed(run: SmallRun, draw: random.Random) -> None:
    """The broker has stored anew what waits, as its part of the log grew old."""
    found = run.stored(run.of("ack", waiting=True)[0]["id"], SCHEDULE_TOPIC)
    note = Stored(f"{run.broker}-note", OP_TOPIC, 0, 0, b"rmq_sys_wheel_timer 0 0-1")
    for node in NODES:
        end = sum(m.topic == SCHEDULE_TOPIC for entry in run.logs[node] for m in entry.messages)
        run.logs[node].append(Entry(2, (note, replace(found, offset=end))))


def _never(run: SmallRun, message_id: str) -> None:
    """The message is in its topic nowhere, and nobody got it: its queue's later ones move up."""
    assert run.stored(message_id)
    run.drop_all(message_id)
    run.events = [e for e in run.events if (e["kind"], e.get("id")) != ("deliver", message_id)]


def _much_later(run: SmallRun, message_id: str) -> None:
    """Events from the message's delivery on happen minutes later."""
    since = min(delivery["t"] for delivery in run.of("deliver", id=message_id))
    for event in run.events:
        if event["kind"] != "end" and event["t"] >= since:
            for name in {"t", "began", "asked"} & event.keys():
                event[name] += 300 * _S


class _Waiting:
    """A message that waits, step by step."""

    def __init__(self, run: SmallRun, **fields: object) -> None:
        """The message is sent; `due` and `expires` count from now."""
        self.run, self.story = run, Story(run)
        self.sent = self.story.t
        times = {"due", "expires"} & fields.keys()
        fields |= {name: self.sent + int(str(fields[name])) for name in times}
        self.id = self.story.begin(BODY, **fields)
        self.topic = HALF_TOPIC if "transaction" in fields else SCHEDULE_TOPIC

    def hold(self) -> None:
        """The message is stored where it waits, and acknowledged."""
        offset = self.run.count(self.topic)
        self.story.store(Stored(self.id, self.topic, 0, offset, BODY), waiting=True)

    def end(self, outcome: str) -> None:
        """The producer gets the answer that the transaction ended so."""
        del self.story.note("resolve", client="p", id=self.id, transaction=outcome)["broker"]

    def come(self) -> Stored:
        """The message comes into its topic."""
        message = Stored(self.id, TOPIC, 0, self.story.ends[0], BODY)
        self.story.ends[0] += 1
        self.run.add(message)
        return message

    def at(self, since_sent: int) -> None:
        """Time passes, until so long after the send."""
        self.story.t = self.sent + since_sent

    def fault(self, broker: str = "") -> None:
        """Note in the history that a restarted node is healed."""
        healed = self.run.note("fault", self.story.t, fault="restart", node="n0")
        healed["broker"] = broker or self.run.broker


def _at_once(run: SmallRun, draw: random.Random, **fields: object) -> None:
    """A message is stored in its topic when it is sent, and so acknowledged."""
    wait = _Waiting(run, **fields)
    message = Stored(wait.id, TOPIC, 0, wait.story.ends[0], BODY)
    wait.story.store(message)
    wait.at(60 * _S)
    wait.story.read(message)


@PLANTS.fault(11, "early")
def delayed_not_at_all(run: SmallRun, draw: random.Random) -> None:
    """A delayed message was stored in its topic at once; it was read only when it was due."""
    _at_once(run, draw, due=50 * _S)


@PLANTS.innocent
def delayed_by_nothing(run: SmallRun, draw: random.Random) -> None:
    """A message was due so soon that the broker did not let it wait."""
    _at_once(run, draw, due=10)


@PLANTS.fault(10, "visible")
def begun_as_a_plain_send(run: SmallRun, draw: random.Random) -> None:
    """A transaction's message was stored in its topic at once."""
    _at_once(run, draw, transaction="commit")


@PLANTS.fault(11, "early")
def came_before_it_waited(run: SmallRun, draw: random.Random) -> None:
    """A delayed message is in its topic before the place where it waits."""
    wait = _Waiting(run, due=50 * _S)
    message = wait.come()
    wait.hold()
    wait.at(60 * _S)
    wait.story.read(message)


@PLANTS.fault(10, "visible")
def committed_before_it_began(run: SmallRun, draw: random.Random) -> None:
    """A transaction's message is in its topic before its half."""
    wait = _Waiting(run, transaction="commit")
    message = wait.come()
    wait.hold()
    wait.end("commit")
    wait.story.read(message)


@PLANTS.fault(10, "visible")
def rolled_back_into_another_topic(run: SmallRun, draw: random.Random) -> None:
    """All logs have what was rolled back, among the outputs."""
    wait = _Waiting(run, transaction="rollback")
    wait.hold()
    wait.end("rollback")
    offset = run.count(OUTPUTS)
    run.add(Stored(wait.id, OUTPUTS, OUTPUTS_QUEUE, offset, BODY))


@PLANTS.fault(10, "visible")
def rolled_back_everywhere_but_on_one(run: SmallRun, draw: random.Random) -> None:
    """Two nodes, the majority, have in its topic what was rolled back."""
    wait = _Waiting(run, transaction="rollback")
    wait.hold()
    wait.come()
    del run.logs["n2"][-1]


@PLANTS.fault(10, "hidden")
def hidden_by_a_majority(run: SmallRun, draw: random.Random) -> None:
    """Two nodes lack a message in its topic whose transaction was committed."""
    message_id = run.of("resolve", transaction="commit")[0]["id"]
    for node in draw.sample(NODES, 2):
        run.drop(node, message_id)


@PLANTS.fault(10, "hidden")
def committed_into_another_topic(run: SmallRun, draw: random.Random) -> None:
    """A committed message is in a topic that no client tells of."""
    wait = _Waiting(run, transaction="commit")
    wait.hold()
    wait.end("commit")
    run.add(Stored(wait.id, "Others", 0, 0, BODY))


@PLANTS.fault(10, "hidden")
def read_and_gone(run: SmallRun, draw: random.Random) -> None:
    """A committed message was delivered, and no log has it in its topic."""
    wait = _Waiting(run, transaction="commit")
    wait.hold()
    wait.end("commit")
    wait.story.read(Stored(wait.id, TOPIC, 0, wait.story.ends[0], BODY))


@PLANTS.fault(10, "late")
def committed_a_second_late(run: SmallRun, draw: random.Random) -> None:
    """A committed message came a second later than it may."""
    _committed(run, 122 * _S)


@PLANTS.innocent
def committed_just_in_time(run: SmallRun, draw: random.Random) -> None:
    """A committed message came a second sooner than it must."""
    _committed(run, 119 * _S)


def _committed(run: SmallRun, after: int, healed: str | None = None) -> None:
    wait = _Waiting(run, transaction="commit")
    wait.hold()
    wait.end("commit")
    if healed is not None:
        wait.at(after // 2)
        wait.fault(healed)
    message = wait.come()
    wait.at(after)
    wait.story.read(message)


@PLANTS.fault(10, "late")
def committed_late_beside_another_fault(run: SmallRun, draw: random.Random) -> None:
    """A committed message came too late, and meanwhile a node of another broker was healed."""
    _committed(run, 130 * _S, "another")


@PLANTS.fault(10, "open")
def open_after_a_fault(run: SmallRun, draw: random.Random) -> None:
    """A transaction to be committed never ended, minutes after the last fault."""
    left_open(run, draw)
    run.note("fault", END_T - 130 * _S, fault="restart", node="n0")


@PLANTS.fault(11, "early")
def early_within_a_second(run: SmallRun, draw: random.Random) -> None:
    """A message came earlier by more than a thousandth of its delay."""
    _delayed(run, 1_000 * _S, 1_000 * _S - _S - 10 * MS)


@PLANTS.innocent
def early_by_a_thousandth(run: SmallRun, draw: random.Random) -> None:
    """A message came earlier by less than a thousandth of its delay."""
    _delayed(run, 1_000 * _S, 1_000 * _S - _S + 10 * MS)


@PLANTS.fault(11, "late")
def late_by_a_second(run: SmallRun, draw: random.Random) -> None:
    """A message came a second later than it may."""
    _delayed(run, 10 * _S, 41 * _S)


@PLANTS.innocent
def in_time_by_a_second(run: SmallRun, draw: random.Random) -> None:
    """A message came a second sooner than it must."""
    _delayed(run, 10 * _S, 39 * _S)


@PLANTS.fault(11, "late")
def late_after_a_fault(run: SmallRun, draw: random.Random) -> None:
    """A message came half a minute and a second after the last fault."""
    _delayed(run, 10 * _S, 61 * _S, fault_at=30 * _S)


@PLANTS.fault(11, "late")
def late_before_a_fault(run: SmallRun, draw: random.Random) -> None:
    """A message came too late, and a node was killed only afterwards."""
    _delayed(run, 10 * _S, 41 * _S, fault_at=50 * _S)


def _delayed(run: SmallRun, due: int, read: int, fault_at: int | None = None) -> None:
    wait = _Waiting(run, due=due)
    wait.hold()
    message = wait.come()
    if fault_at is not None:
        wait.at(fault_at)
        wait.fault()
    wait.at(read - 2_000)
    wait.story.read(message)


@PLANTS.fault(11, "early")
def early_for_one_group(run: SmallRun, draw: random.Random) -> None:
    """A group got a message before its time, and another group in time."""
    wait = _Waiting(run, due=20 * _S)
    wait.hold()
    message = wait.come()
    wait.at(10 * _S)
    wait.story.read(message, "hasty")
    wait.at(21 * _S)
    wait.story.read(message)


@PLANTS.fault(11, "early")
def early_by_a_pop(run: SmallRun, draw: random.Random) -> None:
    """A member popped a message before its time."""
    wait = _Waiting(run, due=20 * _S)
    wait.hold()
    message = wait.come()
    wait.story.read(message, "hasty", asked=wait.story.t, pop_time=9)


@PLANTS.fault(11, "missing")
def never_again(run: SmallRun, draw: random.Random) -> None:
    """A delayed message was stored anew to wait longer, and never came."""
    wait = _Waiting(run, due=20 * _S)
    wait.hold()
    held = run.stored(wait.id, SCHEDULE_TOPIC)
    note = Stored(f"{run.broker}-note", OP_TOPIC, 0, 0, b"rmq_sys_wheel_timer 0 0-1")
    run.add(note, replace(held, offset=held.offset + 1))


@PLANTS.fault(11, "expired")
def popped_after_its_end(run: SmallRun, draw: random.Random) -> None:
    """A member popped a message long after its end."""
    delivery = draw.choice(run.of("deliver", group=POPPERS))
    last = max(event["t"] for event in run.of("deliver", id=delivery["id"]))
    run.of("send", id=delivery["id"])[0]["expires"] = last - 3 * _S


@PLANTS.fault(11, "expired")
def given_again_after_its_end(run: SmallRun, draw: random.Random) -> None:
    """A group got a message in time, and once more after its end."""
    _ending(run, 10 * _S, 5 * _S, 13 * _S)


@PLANTS.innocent
def given_again_before_its_end(run: SmallRun, draw: random.Random) -> None:
    """A group got a message twice, both times before its end."""
    _ending(run, 10 * _S, 5 * _S, 9 * _S)


@PLANTS.fault(11, "expired")
def due_after_its_end(run: SmallRun, draw: random.Random) -> None:
    """A message ends before its time comes, and was delivered in its time."""
    _ending(run, 10 * _S, 21 * _S, due=20 * _S)


def _ending(run: SmallRun, expires: int, *moments: int, **fields: object) -> None:
    wait = _Waiting(run, expires=expires, due=fields.get("due", 0))
    wait.hold()
    message = wait.come()
    for moment in moments:
        wait.at(moment)
        wait.story.read(message)
