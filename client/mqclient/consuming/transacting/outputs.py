"""Outputs of a transaction: finished records by topic and queue, in the order of an entry. Pure."""

from __future__ import annotations

from typing import NamedTuple

from dledger.remoting.headers import WriteOnceResponseHeader
from mqclient import limits
from mqclient.errors import BadMessage
from mqclient.models import SendResult


class _Output(NamedTuple):
    key: str
    topic: str
    queue_id: int
    nth: int


class Outputs:
    """The records of one transaction. Records of a queue are one run, a topic's runs one part."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._parts: dict[str, dict[int, list[bytes]]] = {}
        self._sent: list[_Output] = []

    def add(self, topic: str, queue_id: int, key: str, record: bytes) -> None:
        """Add an encoded message to the transaction's outputs. Raises BadMessage if it would be too
        much for one entry."""
        size_bytes, count = self.size_bytes + len(record), len(self._sent) + 1
        if (
            size_bytes > limits.TRANSACTION_BYTES_MAX
            or count > limits.TRANSACTION_RECORDS_MAX
            or len({*self._parts, topic}) > limits.TRANSACTION_TOPICS_MAX
        ):
            raise BadMessage(
                f"a transaction of {count} messages, {size_bytes} bytes and "
                f"{len({*self._parts, topic})} topics is above {limits.TRANSACTION_RECORDS_MAX} "
                f"messages, {limits.TRANSACTION_BYTES_MAX} bytes or "
                f"{limits.TRANSACTION_TOPICS_MAX} topics: poll fewer messages for one transaction"
            )
        records = self._parts.setdefault(topic, {}).setdefault(queue_id, [])
        self._sent.append(_Output(key, topic, queue_id, len(records)))
        records.append(record)
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def first(self) -> str | None:
        """The topic of the first, if there is one."""
        return next(iter(self._parts), None)

    def parts(self) -> list[tuple[str, int, list[tuple[int, int]]]]:
        """(topic, size in bytes, runs of (queue id, count)), as WRITE_ONCE tells them."""
        return [
            (
                topic,
                sum(len(record) for run in runs.values() for record in run),
                [(queue_id, len(run)) for queue_id, run in runs.items()],
            )
            for topic, runs in self._parts.items()
        ]

    def body(self) -> bytes:
        """The records back to back."""
        return b"".join(
            record for runs in self._parts.values() for run in runs.values() for record in run
        )

    def results(
        self, answer: WriteOnceResponseHeader, broker_name: str, leader: str
    ) -> list[SendResult]:
        """Where each went, in the order in which they were sent; -1 if brokers don't know any
        more."""
        places = [(topic, queue_id) for topic, runs in self._parts.items() for queue_id in runs]
        firsts = dict(zip(places, [offset for _, offset in answer.offsets], strict=False))
        starts: dict[tuple[str, int], list[int]] = {}
        at = answer.position
        for topic, runs in self._parts.items():
            for queue_id, run in runs.items():
                for record in run:
                    starts.setdefault((topic, queue_id), []).append(at)
                    at += len(record)
        known = len(firsts) == len(places)
        return [
            SendResult(
                message_id=key,
                topic=topic,
                broker_name=broker_name,
                queue_id=queue_id,
                queue_offset=firsts[topic, queue_id] + nth if known else -1,
                position=starts[topic, queue_id][nth] if known else -1,
                leader=leader,
            )
            for key, topic, queue_id, nth in self._sent
        ]
