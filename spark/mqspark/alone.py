"""What replicas alone can show, without a history of what clients were told.

The bytes of each are judged by themselves: records and entries match their checksums, entries
follow each other (2, 5). And the replicas are compared (5, 13), as far as the log is settled. No
client says how far that is. Copies that brokers made of themselves say how far they were committed
(their manifests): below the lowest such position all must be there, and be the same. Beyond it, and
for replicas that are no such copies, settled is what no later leader can have changed as far as
can be seen: up to the shortest replica's end, and not beyond the first entry on which two replicas
are of different terms. A leader may have had that one replaced.

Where the replicas' logs begin at different positions, since old segments were removed from one
sooner than from the other, they are compared from the last of these on.

All else needs a history. Even that a queue has no holes does: a topic that was deleted and made
again begins its queues anew.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import text, violation

BODIES_ONLY: Final = "only that records match their checksums and say where they stand"
NEEDS_HISTORY: Final = {
    1: "which sends were acknowledged, only a history says",
    3: "which message had a place before, only a history says",
    4: "a topic may have been deleted and made again; which reads there were, only a history says",
    6: "who led and who voted for whom, only a history says",
    7: "who led, and what had been acknowledged by then, only a history says",
    8: "what was delivered when an offset was committed, only a history says",
    9: "whether a key was sent again on purpose, only a history says",
    10: "how a transaction was to end, only a history says",
    11: "when messages were due and came, only a history says",
    12: "what brokers answered, only a history says",
    14: "which group passed which inputs, only a history says",
    15: "who was given what, and was through with it, only a history says",
    16: "who was given what, and when, only a history says",
}
ONE_REPLICA: Final = "there is one replica only, and nothing to compare it with"


def record_violations(evidence: Evidence) -> DataFrame:
    """A row for each record that contradicts its own checksum or place."""
    wrong = evidence.records.where(F.col("error").isNotNull() & F.col("topic").isNotNull())
    held = wrong.join(F.broadcast(evidence.members_table), "broker").where(
        F.expr("getbit(holders, bit) = 1")
    )
    return violation(
        held.where(evidence.is_settled()),
        "damaged",
        text("{error}"),
        severity=1,
        message_id=F.col("unique_key"),
        positions=[F.col("position")],
    )
