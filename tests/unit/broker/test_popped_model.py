"""Deliveries of POP, against a table of every single message, over any order of entries.

Entries are planned on any earlier state, as if they had overtaken each other, and each is encoded
and decoded as in the log. A second replica is stopped and restored between them.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dledger.remoting.bodies import SubscriptionGroupConfig
from mqbroker.state import control
from mqbroker.state.groups.bits import bits_from_bytes, bits_to_bytes, offsets_in
from mqbroker.state.groups.popping import (
    PopAck,
    PopChange,
    PopMessages,
    PopQueue,
    Settled,
    SettlePopped,
)
from mqbroker.state.memory import Granted, Memory
from mqbroker.state.topics import read_write
from mqbroker.testing.pictured import saved_state_of

GROUP, TOPIC, QUEUE = "C", "Orders", 0
WIDTH = 8


@dataclass
class Flying:
    """A message in somebody's hands, as the model knows it."""

    fence: int
    visible_ms: int
    deliveries: int


class Model(RuleBasedStateMachine):
    """A model of one group and queue; a message is new, in flight, or done."""

    def __init__(self) -> None:
        super().__init__()
        self.replica, self.stopping = Memory(), Memory()
        self.index = 0
        self.now_ms = 1_000
        self.cursor = 0
        self.flying: dict[int, Flying] = {}
        self.done: set[int] = set()
        self.fences: set[int] = set()
        #: (offset, fence) of every delivery.
        self.receipts: list[tuple[int, int]] = []
        self.known = False
        self.apply(control.PutTopics([read_write(TOPIC, 1)], 1))
        self.apply(control.PutGroups([SubscriptionGroupConfig(GROUP)], 1))

    def apply(self, change: control.Control) -> object:
        """Apply an encoded change to both replicas."""
        body = control.encode_control(change)
        self.index += 1
        results = []
        for replica in (self.replica, self.stopping):
            decoded = control.decode_control(body)
            control.check_control(decoded, 1 << 40, self.index)
            results.append(replica.change(decoded, self.index))
        assert results[0] == results[1]
        return results[0]

    @rule()
    def stop_and_restore(self) -> None:
        """Restart one replica from its snapshot."""
        kept = saved_state_of(self.stopping)
        self.stopping = Memory()
        self.stopping.take_memory(kept)

    @rule(ms=st.integers(0, 50))
    def time_passes(self, ms: int) -> None:
        """The leader's clock goes on."""
        self.now_ms += ms

    @rule(
        wanted=st.integers(0, 2**WIDTH - 1),
        count=st.integers(0, WIDTH),
        hidden_ms=st.integers(0, 60),
        late=st.integers(0, 2),
        again=st.lists(st.integers(0, 40), max_size=4),
        repeats=st.booleans(),
    )
    def pop(
        self,
        wanted: int,
        count: int,
        hidden_ms: int,
        late: int,
        again: list[int],
        repeats: bool,
    ) -> None:
        """Pop `count` messages from the cursor on, without those that a filter leaves out, and some
        again.

        A plan that is `late` expects an earlier cursor, or none.
        """
        present = self.cursor if self.known else -1
        expected = (present, max(-1, present - 1), -2)[late]
        start = max(expected, 0)
        bits = wanted & (1 << count) - 1
        chosen = sorted({n for n in again if n in self.flying})
        if not repeats:
            chosen = [n for n in chosen if self.flying[n].visible_ms <= self.now_ms]
        rows = [(self.flying[n].fence, n, b"\x01") for n in chosen]
        stale = [(fence, n, b"\x01") for n, fence in self.receipts[-3:] if n in self.done]
        row = PopQueue(QUEUE, expected, start + count, start, bits_to_bytes(bits), rows + stale)
        before = dict(self.flying)
        granted = self.apply(
            PopMessages(GROUP, TOPIC, [row], self.now_ms, self.now_ms + hidden_ms, repeats=repeats)
        )
        assert isinstance(granted, Granted)
        got = {
            offset: taken.deliveries
            for taken in granted.taken
            for offset in offsets_in(taken.base, taken.bits)
        }
        meant = {n: before[n].deliveries + (not repeats) for n in chosen}
        if expected == present:
            meant |= dict.fromkeys(offsets_in(start, bits), 1)
            passed = set(range(start, start + count)) - set(offsets_in(start, bits))
            self.done |= passed
            self.cursor = start + count
            self.known = True
        assert got == meant
        assert sum(taken.bits.bit_count() for taken in granted.taken) == len(got)
        for offset, deliveries in got.items():
            self.flying[offset] = Flying(granted.fence, self.now_ms + hidden_ms, deliveries)
            self.receipts.append((offset, granted.fence))
        if got:
            assert granted.fence not in self.fences
            assert granted.fence >= self.now_ms
            self.fences.add(granted.fence)

    def _row(self, data: st.DataObject) -> tuple[int, int, bytes, dict[int, int]]:
        """Draw some messages of one fence, and which of them are in flight by it."""
        offset, fence = data.draw(st.sampled_from(self.receipts))
        bits = data.draw(st.integers(1, 2**WIDTH - 1))
        hit = {
            n: fence
            for n in offsets_in(offset, bits)
            if n in self.flying and self.flying[n].fence == fence
        }
        return offset, fence, bits_to_bytes(bits), hit

    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        """Acknowledge messages by a handle of any age."""
        if not self.receipts:
            return
        offset, fence, bits, hit = self._row(data)
        entry = SettlePopped([PopAck(GROUP, TOPIC, QUEUE, fence, offset, bits)], [], self.now_ms)
        settled = self.apply(entry)
        assert isinstance(settled, Settled)
        assert set(offsets_in(offset, settled.acked[0])) == set(hit)
        for n in hit:
            del self.flying[n]
            self.done.add(n)

    @rule(
        data=st.data(), hidden_ms=st.integers(0, 60), uncounted=st.booleans(), keeps=st.booleans()
    )
    def change(self, data: st.DataObject, hidden_ms: int, uncounted: bool, keeps: bool) -> None:
        """Change messages' time by a handle of any age."""
        if not self.receipts:
            return
        offset, fence, bits, hit = self._row(data)
        visible_ms = self.now_ms + hidden_ms
        row = PopChange(GROUP, TOPIC, QUEUE, fence, offset, bits, visible_ms, uncounted, keeps)
        settled = self.apply(SettlePopped([], [row], self.now_ms))
        assert isinstance(settled, Settled)
        new_fence, found = settled.changed[0]
        assert set(offsets_in(offset, found)) == set(hit)
        if hit and not keeps:
            assert new_fence not in self.fences
            self.fences.add(new_fence)
        for n in hit:
            flying = self.flying[n]
            deliveries = max(0, flying.deliveries - uncounted)
            self.flying[n] = Flying(fence if keeps else new_fence, visible_ms, deliveries)
            self.receipts.append((n, self.flying[n].fence))

    @rule(offset=st.integers(0, 40))
    def reset(self, offset: int) -> None:
        """The group is set to an offset."""
        self.apply(control.CommitOffsets([(GROUP, TOPIC, QUEUE, offset)]))
        if self.known:
            self.flying.clear()
            self.cursor = offset
            self.done = set(range(offset))

    @rule(begin=st.integers(0, 40))
    def drop_head(self, begin: int) -> None:
        """Retention takes the oldest messages."""
        had = self.known and min([*self.flying, self.cursor]) < begin
        for replica in (self.replica, self.stopping):
            replica.retain_from(TOPIC, QUEUE, begin)
        if had:
            self.flying = {n: each for n, each in self.flying.items() if n >= begin}
            self.cursor = max(self.cursor, begin)
            self.done |= set(range(begin))

    @invariant()
    def nothing_is_lost_and_nothing_is_done_twice(self) -> None:
        """Below the cursor a message is flying or done; what is committed is below all flying."""
        if not self.known:
            return
        for replica in (self.replica, self.stopping):
            queue = replica.popped.queue(GROUP, TOPIC, QUEUE)
            assert queue is not None
            found = {
                n: Flying(each.fence, each.visible_ms, each.deliveries)
                for each in queue.deliveries()
                for n in offsets_in(each.base, each.bits)
            }
            assert found == self.flying
            assert sum(map(len, queue.deliveries())) == len(found) == replica.popped.count
            assert queue.cursor == self.cursor
            lowest = min([*self.flying, self.cursor])
            assert queue.committed == replica.offsets.get(GROUP, TOPIC, QUEUE) == lowest
            of_topic = replica.popped.topic(GROUP, TOPIC)
            assert of_topic is not None
            times = [each.visible_ms for each in self.flying.values()]
            assert of_topic.next_ms() == min(times, default=None)
            seen = of_topic.visible(self.now_ms, 100, lambda _: True)
            assert {n for each in seen for n in offsets_in(each.base, each.bits)} == {
                n for n, each in self.flying.items() if each.visible_ms <= self.now_ms
            }
        assert set(self.flying).isdisjoint(self.done)
        assert set(self.flying) | self.done >= set(range(self.cursor))

    @invariant()
    def replicas_agree(self) -> None:
        """Both replicas' states are equal to the byte."""
        assert saved_state_of(self.replica) == saved_state_of(self.stopping)


Model.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestPopped = Model.TestCase


def test_a_delivery_that_has_lost_messages_stands_in_its_place_in_a_snapshot() -> None:
    """The message that is left lies elsewhere in the memory of a replica that came from one."""
    model = Model()
    row = PopQueue(QUEUE, -1, 5, 0, bits_to_bytes(0b10101), [])
    granted = model.apply(PopMessages(GROUP, TOPIC, [row], 1000, 1000, repeats=False))
    assert isinstance(granted, Granted)
    change = PopChange(
        GROUP, TOPIC, QUEUE, granted.fence, 0, bits_to_bytes(0b101), 1000, False, True
    )
    model.apply(SettlePopped([], [change], 1000))
    model.stop_and_restore()
    model.replicas_agree()


def test_bits_are_bytes_with_the_first_message_lowest() -> None:
    """Bits are encoded as in RocketMQ's acks, the first message lowest."""
    assert bits_to_bytes(0b10_0000_1001) == b"\x09\x02"
    assert bits_from_bytes(b"\x09\x02\x00") == 0b10_0000_1001
