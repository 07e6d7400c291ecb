"""Property 2: nothing is read that was not sent, and what is read is what was sent.

A message is read when a consumer gets it, and when a replica's log holds it, since a drain reads
that. A record that was not sent (a phantom) is a violation anywhere in a log, because a harness
notes a send before it makes it; so what was delivered before it was sent is a phantom, too. What is
read in another topic than it was sent to is astray. A dead
letter has the body that was sent, but perhaps not all properties: those that have no room beside
what brokers add are left out. A send that definitely failed may be in an unsettled tail, which
may still be cut; it must not be in the settled part. A send of unknown outcome may be read.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.alone import BODIES_ONLY, record_violations
from mqspark.judge.evidence import Evidence
from mqspark.judge.lives import own_topic
from mqspark.judge.logs import lacking_parts
from mqspark.judge.violations import Alone, Property, counted, text, together, violation
from mqspark.screening.testimony import ACK, BURIED, DELIVER, FAIL, SEND

_PLACE: Final = (
    "id",
    "broker",
    "replica",
    "topic",
    "queue_id",
    "queue_offset",
    "position",
    "crc",
    "properties",
)


def violations(evidence: Evidence) -> DataFrame:
    """A row for each reading of a message that was not sent, was refused, or was changed."""
    found = [] if evidence.is_agreed else [_of_records(evidence)]
    if (lacking := lacking_parts(evidence)) is not None:
        found.append(
            violation(
                lacking.where(~F.col("acked") & evidence.is_settled()),
                "damaged",
                text("stored at offset {queue_offset}, and can't be read: {error}"),
                severity=1,
                positions=[F.col("position")],
            )
        )
    return together(*found) if found else evidence.nothing()


def _of_records(evidence: Evidence) -> DataFrame:
    said = evidence.suspects
    sent, refused = _sent(said), _refused(said)
    delivered = said.where(F.col("source") == DELIVER).withColumn(
        "replica", F.lit(None).cast("string")
    )
    held = evidence.holdings.unionByName(evidence.held)
    whole = evidence.holdings.where(F.col("error").isNull())
    waiting = evidence.held.where(F.col("error").isNull())
    letters = _letters(evidence)
    settled = whole.where(evidence.is_settled())
    reads = whole.select(*_PLACE).unionByName(delivered.select(*_PLACE))
    final_reads = settled.select(*_PLACE).unionByName(delivered.select(*_PLACE))
    damaged = held.where(F.col("error").isNotNull() & evidence.is_settled())
    place = "{topic}/{queue_id} offset {queue_offset}"
    reader = F.when(F.col("replica").isNull(), F.lit("delivered")).otherwise(F.lit("stored"))
    return together(
        _named(reads.join(sent, "id", "left_anti"), "phantom", reader, f" at {place}, never sent"),
        _named(
            delivered.join(sent, "id").where("t < sent_t"),
            "phantom",
            reader,
            f" at {place} at {{t}} ns, before it was sent, at {{sent_t}} ns",
        ),
        _named(
            final_reads.join(refused, "id"),
            "refused",
            reader,
            f" at {place}, though its send definitely failed",
        ),
        _named(
            reads.unionByName(waiting.select(*_PLACE))
            .unionByName(letters.select(*_PLACE))
            .join(sent, "id")
            .where("crc != sent_crc OR properties != sent_properties")
            .withColumn("other", _other()),
            "altered",
            reader,
            f" at {place} with {{other}} than what was sent",
        ),
        _named(_astray(reads, sent), "astray", reader, f" at {place}, and sent to {{sent_topic}}"),
        violation(
            damaged,
            "damaged",
            text("{error}"),
            severity=1,
            positions=[F.col("position")],
        ),
    )


def _sent(said: DataFrame) -> DataFrame:
    """Messages as they were sent, each with its time."""
    sent = said.where(F.col("source") == SEND).groupBy("id")
    return sent.agg(
        F.max("crc").alias("sent_crc"),
        F.max("properties").alias("sent_properties"),
        F.min("t").alias("sent_t"),
        F.max("topic").alias("sent_topic"),
    )


def _astray(reads: DataFrame, sent: DataFrame) -> DataFrame:
    """Readings in another topic than that of the send."""
    return reads.join(sent, "id").where(own_topic() != F.col("sent_topic"))


def _refused(said: DataFrame) -> DataFrame:
    """The ids of sends that definitely failed."""
    failed = said.where((F.col("source") == FAIL) & F.col("definite")).select("id").distinct()
    return failed.join(said.where(F.col("source") == ACK), "id", "left_anti")


def _letters(evidence: Evidence) -> DataFrame:
    """Dead letters, whose properties say nothing here."""
    letters = evidence.copies(BURIED).where(F.col("error").isNull())
    return letters.withColumn("properties", F.lit(None).cast("long"))


def _other() -> Column:
    """Parts of a message that are not as they were sent."""
    return F.when(F.col("crc") != F.col("sent_crc"), "another body").otherwise(
        "other keys, tag, properties or flag"
    )


def _named(rows: DataFrame, what: str, reader: Column, template: str) -> DataFrame:
    return violation(
        rows.distinct(),
        what,
        F.concat(reader, text(template)),
        positions=F.array_compact(F.array("position")),
    )


PROPERTY: Final = Property(
    2,
    violations,
    counted("reads"),
    Alone(record_violations, part=BODIES_ONLY),
    explained=("phantom",),
)
