"""Figures of messages that came into topics and that groups were given, by the leader. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from dledger.metrics.shown import Shown
from dledger.metrics.text import Buckets, Family, Sample, Writer
from dledger.remoting.message import DLQ_PREFIX
from dledger.remoting.names import HALF_TOPIC, UNREADABLE, topic_kind
from mqbroker.flow.rates import Rates
from mqbroker.flow.statistics import GET
from mqbroker.flow.traffic import BY_ORIGIN, Arrived
from mqbroker.metrics import naming
from mqbroker.state.attributes import MESSAGE_TYPE

if TYPE_CHECKING:
    from mqbroker.state.machine import Machine

_ARRIVED: Final = (
    Family("rocketmq_messages_in_total", "counter", "Messages stored."),
    Family("rocketmq_throughput_in_total", "counter", "Bytes of the records stored."),
    Family("rocketmq_message_size", "histogram", "Bytes of a record; the mean of a batch's."),
)
_GIVEN: Final = (
    Family("rocketmq_messages_out_total", "counter", "Messages handed out."),
    Family("rocketmq_throughput_out_total", "counter", "Bytes handed out."),
)
_DEAD: Final = Family("rocketmq_send_to_dlq_messages_total", "counter", "Messages given up.")
_HALF: Final = Family("rocketmq_half_messages", "gauge", "Transactions without an end.")
_COMMIT_TIMES: Final = Family(
    "rocketmq_finish_message_latency_milliseconds",
    "histogram",
    "Seconds, as in RocketMQ, from the birth of a message until its transaction was committed.",
)
_FINISHED: Final = Family(
    "dledger_transaction_finish_seconds",
    "histogram",
    "From the store of a half message until its producer ended it.",
)
_COMMITTED: Final = Family("rocketmq_commit_messages_total", "counter", "Transactions committed.")
_ROLLED_BACK: Final = Family(
    "rocketmq_rollback_messages_total", "counter", "Transactions rolled back."
)
_DEAD_LETTERS: Final = Family(
    "dledger_dead_letters_total",
    "counter",
    "Dead letters that a group ever had, as they are numbered.",
)
_HELD_BACK: Final = Family(
    "dledger_held_back_total", "counter", "Requests that came too early for a rate."
)


class Names(NamedTuple):
    """The topics and groups that are shown, and the names of topics that are named like servers."""

    topics: Shown
    groups: Shown
    like_servers: tuple[str, str]


class TrafficFigures:
    """Messages and bytes into topics and out to groups."""

    def __init__(self, machine: Machine, rates: Rates, names: Names) -> None:
        self._machine = machine
        self._rates = rates
        self._names = names

    def weights(self) -> dict[str, int]:
        """Messages that came, by topic."""
        weights: dict[str, int] = {}
        for (topic, _), row in self._rates.traffic.arrived.items():
            weights[topic] = weights.get(topic, 0) + row.messages
        return weights

    def group_weights(self) -> dict[str, int]:
        """Messages that were given, by group."""
        weights: dict[str, int] = {}
        for key, messages, _ in self._rates.statistics.totals(GET):
            group = key.partition("@")[2]
            weights[group] = weights.get(group, 0) + messages
        return weights

    def pieces(self, writer: Writer) -> Iterator[str]:
        """The metric families as text, a piece at a time."""
        arrived: dict[tuple[str, ...], Arrived] = {}
        yield from self._add_arrived(arrived)
        of = [
            (_labels(key, "topic", "message_type", "is_system"), row)
            for key, row in arrived.items()
        ]
        messages, throughput, sizes = _ARRIVED
        yield from writer.family(messages, ((labels, row.messages) for labels, row in of))
        yield from writer.family(throughput, ((labels, row.size_bytes) for labels, row in of))
        yield from writer.family(sizes, ((labels, row.sizes) for labels, row in of))
        given: dict[tuple[str, ...], list[int]] = {}
        yield from self._add_given(given)
        for place, family in enumerate(_GIVEN):
            yield from writer.family(
                family,
                (
                    (_labels(key, "topic", "consumer_group", "is_system", "is_retry"), row[place])
                    for key, row in given.items()
                ),
            )
        for family, counts in self._by_topic():
            shown = yield from by_topic(counts, self._names)
            yield from writer.family(family, shown)
        times = yield from times_by_topic(self._rates.traffic.commits, self._names)
        yield from writer.family(_COMMIT_TIMES, times)
        finished = self._rates.traffic.finished.items()
        yield from writer.family(_FINISHED, [({"end": end}, times) for end, times in finished])
        dead: dict[tuple[str, ...], int] = {}
        yield from self._add_dead(dead)
        yield from writer.family(
            _DEAD,
            (
                (_labels(key, "consumer_group", "topic", "is_system"), count)
                for key, count in dead.items()
            ),
        )
        letters: dict[str, int] = {}
        yield from self._add_letters(letters)
        yield from writer.family(
            _DEAD_LETTERS,
            (({"consumer_group": group}, count) for group, count in letters.items()),
        )
        yield from writer.family(
            _HELD_BACK,
            [
                ({"what": "sends"}, self._rates.sends_held_back.total),
                ({"what": "reads"}, self._rates.reads_held_back.total),
                ({"what": "repeats"}, self._rates.repeats_put_off.total),
            ],
        )

    def _add_arrived(self, arrived: dict[tuple[str, ...], Arrived]) -> Iterator[str]:
        """Sum up by labels; an empty piece at each step."""
        for (topic, origin), row in list(self._rates.traffic.arrived.items()):
            yield ""
            system, config = self._kind(topic), self._machine.topics.get(topic)
            if config is None or system is None:
                continue
            declared = config.attributes.get(MESSAGE_TYPE, "normal").lower()
            shown = self._names.topics.name(topic)
            key = (shown, BY_ORIGIN.get(origin) or _undelayed(declared), system)
            of = arrived.setdefault(key, Arrived())
            of.messages += row.messages
            of.size_bytes += row.size_bytes
            of.sizes.take(row.sizes)

    def _kind(self, topic: str) -> str | None:
        """Whether it is a system topic; None for one that is not counted."""
        kind = topic_kind(topic, self._names.like_servers)
        if topic in UNREADABLE or kind in ("retry", "dead-letter"):
            return None
        return naming.flag(kind == "system")

    def _add_given(self, given: dict[tuple[str, ...], list[int]]) -> Iterator[str]:
        names = self._names
        for key, messages, size_bytes in self._rates.statistics.totals(GET):
            yield ""
            topic, _, group = key.partition("@")
            pops = self._machine.popped.topic(group, topic) is not None
            kind = topic_kind(topic, names.like_servers)
            if self._machine.groups.get(group) is None or (
                kind in ("retry", "dead-letter") and not pops
            ):
                continue
            system = naming.flag(kind == "system" or naming.is_system_group(group))
            labels = (names.topics.name(topic), names.groups.name(group), system)
            retry = (naming.flag(kind == "retry"),) if pops else ()
            of = given.setdefault((*labels, *retry), [0, 0])
            of[0] += messages
            of[1] += size_bytes

    def _by_topic(self) -> Iterator[tuple[Family, dict[str, int]]]:
        machine, traffic = self._machine, self._rates.traffic
        yield _HALF, machine.halves.owners.rows_by(0)
        committed = {
            topic: row.messages
            for (topic, origin), row in traffic.arrived.items()
            if origin == HALF_TOPIC and topic not in UNREADABLE
        }
        yield _COMMITTED, committed
        yield _ROLLED_BACK, traffic.rolled_back

    def _add_letters(self, letters: dict[str, int]) -> Iterator[str]:
        """Sum up the ends of dead-letter topics, which no restart and no other leader changes."""
        machine = self._machine
        for topic in [each.topic_name for each in machine.topics]:
            yield ""
            config = machine.topics.get(topic)
            if config is None or not topic.startswith(DLQ_PREFIX):
                continue
            group = self._names.groups.name(topic.removeprefix(DLQ_PREFIX))
            count = sum(machine.queues.end(topic, each) for each in range(config.queues))
            letters[group] = letters.get(group, 0) + count

    def _add_dead(self, sums: dict[tuple[str, ...], int]) -> Iterator[str]:
        for (group, topic), count in list(self._rates.traffic.given_up.items()):
            yield ""
            system = naming.is_system_topic(topic, self._names.like_servers)
            key = (
                self._names.groups.name(group),
                self._names.topics.name(topic),
                naming.flag(system or naming.is_system_group(group)),
            )
            sums[key] = sums.get(key, 0) + count


def by_topic(counts: Mapping[str, int], names: Names) -> Generator[str, None, list[Sample]]:
    """Samples by topic; an empty piece at each step."""
    sums: dict[str, int] = {}
    for topic, count in list(counts.items()):
        yield ""
        if topic not in UNREADABLE:
            shown = names.topics.name(topic)
            sums[shown] = sums.get(shown, 0) + count
    return [({"topic": topic}, count) for topic, count in sums.items()]


def times_by_topic(rows: Mapping[str, Buckets], names: Names) -> Generator[str, None, list[Sample]]:
    """Histograms by topic; an empty piece at each step."""
    sums: dict[str, Buckets] = {}
    for topic, row in list(rows.items()):
        yield ""
        sums.setdefault(names.topics.name(topic), Buckets(row.bounds)).take(row)
    return [({"topic": topic}, times) for topic, times in sums.items()]


def _undelayed(declared: str) -> str:
    """The type of a message that came straight into a topic that takes such."""
    return declared if declared in ("fifo", "priority", "lite") else "normal"


def _labels(values: tuple[str, ...], *names: str) -> dict[str, str]:
    return dict(zip(names, values, strict=False))
