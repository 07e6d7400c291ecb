"""Property 19: a batch is whole or absent, and batches come in order.

Only logs are asked (:mod:`mqspark.judge.batches.faults`): the property is judged with a history and
without one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from dledger.remoting.names import HALF_TOPIC
from mqspark.judge import COLUMNS
from mqspark.judge.batches.faults import Faults, GroupLog
from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Alone, Property
from mqspark.screening.changes import DELETE_TOPIC
from mqspark.source.batches import StagedBatches


def checked(evidence: Evidence) -> int:
    """How many decisions and staged entries there are."""
    return faults_of(evidence).checked


def violations(evidence: Evidence) -> DataFrame:
    """A row for each contradiction."""
    rows = [
        (0, each.what, None, each.broker, None, HALF_TOPIC, 0, each.offset, [*each.positions],
         each.detail)
        for each in faults_of(evidence).found
    ]  # fmt: skip
    return evidence.session.createDataFrame(rows, COLUMNS) if rows else evidence.nothing()


def faults_of(evidence: Evidence) -> Faults:
    """The contradictions about batches in all logs."""
    return Faults(_log(evidence, name) for name in evidence.members.brokers)


def _log(evidence: Evidence, broker: str) -> GroupLog:
    members = evidence.members
    deleted: dict[str, list[int]] = {}
    for name, act, topic, _, position in sorted(evidence.summary.acts):
        if (name, act) == (broker, DELETE_TOPIC):
            deleted.setdefault(topic, []).append(position)
    return GroupLog(
        broker,
        evidence.summary.batches.get(broker, StagedBatches()),
        min(members.begins(broker)),
        evidence.common_ends.get(broker, 0),
        _is_final(evidence, broker),
        deleted,
    )


def _is_final(evidence: Evidence, broker: str) -> bool:
    """Whether nothing was committed that these replicas lack. Copies are made while all goes on;
    and without a history nobody says how many members there are."""
    replicas = evidence.members.of(broker)
    if evidence.alone or any(replica.manifest is not None for replica in replicas):
        return False
    return 2 * len(replicas) > len(evidence.meta.brokers.get(broker, ()))


PROPERTY: Final = Property(
    19,
    violations,
    checked,
    Alone(violations, checked),
)
