"""Property 16: in a topic of priorities nothing is popped while something of a higher one waits.

The number of a queue is its priority, for each broker group by itself. A pop takes of the highest
queue that has something new. Two statements follow.

**Nothing waits for what counts less.** Let h be a message that its producer knows is stored at a
place of a higher queue, before some pop was asked for. Let that pop have brought m, of a lower
queue, which nobody of the group had been handed before; and let m be noted before another pop was
asked for, the one that brought h, which nobody had been handed before either. Then h was in its
queue, for whoever leads serves with all that was acknowledged applied, and free, when m was taken:
it was passed over. All four moments are read off one clock. What is no violation:

- Pops that were under way at the same time, and messages of one answer, prove nothing.
- A message that may have been handed out before is neither m nor h: in an answer that was lost, or
  to a member that gave it back unseen. Then somebody had it in hand at that moment, or it comes
  again, and so last. The broker says which these are; if it says so too often, less is judged.
- Priorities above the last queue are one: queues are compared, and not what the sender asked for. A
  message that is stored twice counts where its acknowledgement says.
- Of a queue of which 10,000 messages are in hand nothing new is handed out, so only the first so
  many of each are looked at as h.
- A queue whose offset was set on purpose, or committed by members that pull, says nothing, nor does
  a broker that has removed old segments: messages are then new again, or passed by.
- A filter is the same for all members of a group: what it leaves out is never brought.

It is about topics whose queues stay as many as they are, and groups that pop any queue, in no
order, and always by priority (`priority.factor`). Other topics and groups are not to be named.

**Each is in its queue.** A message of priority p was acknowledged in queue p, or in the last one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.answers.questions import with_highest
from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Property, text, together, violation
from mqspark.limits import IN_HAND_MAX
from mqspark.screening.tasks import COMMIT, RESET
from mqspark.screening.testimony import ACK, DELIVER, QUEUE, SEND
from mqspark.source.members import looked_up

_GROUP: Final = ("group", "broker", "topic")
_PLACE: Final = ("group", *QUEUE)


def checked(evidence: Evidence) -> int:
    """How many messages were handed out for the first time."""
    return evidence.summary.new if evidence.meta.levels else 0


def violations(evidence: Evidence) -> DataFrame:
    """A row for each message that was passed over, or is in another queue than its own."""
    levels = evidence.meta.levels
    if not levels:
        return evidence.nothing()
    source = F.col("source")
    said = evidence.kept(
        evidence.testimony.where(F.col("topic").isin(*levels)).where(
            (source == ACK)
            | ((source == SEND) & F.col("priority").isNotNull())
            | ((source == DELIVER) & F.col("asked").isNotNull())
        )
    )
    return together(_passed_over(evidence, said), _misplaced(evidence, said))


def _passed_over(evidence: Evidence, said: DataFrame) -> DataFrame:
    """Messages that waited while one of a lower queue was handed out."""
    whole = [name for name, begin in evidence.begins.items() if begin == 0]
    moved = evidence.noted.where(F.col("kind").isin(RESET, COMMIT)).select(*_PLACE).distinct()
    handed = (
        said.where((F.col("source") == DELIVER) & F.col("broker").isin(*whole))
        .join(F.broadcast(moved), list(_PLACE), "left_anti")
        .select(*_PLACE, "queue_offset", "id", "asked", "t")
    )
    acked = (
        said.where(F.col("source") == ACK)
        .groupBy(*QUEUE, "queue_offset")
        .agg(F.min("t").alias("acked"))
    )
    waited = (
        handed.where(F.col("queue_offset") < IN_HAND_MAX)
        .groupBy(*_PLACE, "queue_offset")
        .agg(F.min("asked").alias("asked"), F.min("id").alias("id"))
        .join(acked, [*QUEUE, "queue_offset"])
    )
    # A message counts for each higher queue. Of those asked for after `acked` the first to be noted
    # is sought: of all earlier ones the highest, with the clock turned round.
    above = handed.select(*_GROUP, F.col("queue_id").alias("above")).distinct()
    lower = (
        handed.join(F.broadcast(above), list(_GROUP))
        .where("above > queue_id")
        .select(
            *_GROUP,
            F.col("above").alias("queue_id"),
            (-F.col("asked")).alias("at"),
            (-F.col("t")).alias("known"),
        )
    )
    asked = waited.withColumn("at", -F.col("acked")).withColumn("offset", F.col("queue_offset"))
    rows = with_highest(asked, lower, *_PLACE).withColumn("meanwhile", -F.col("highest"))
    return violation(
        rows.where("meanwhile < asked"),
        "passed over",
        text(
            "acknowledged at {acked} ns, and brought to group {group} by a pop that was asked for "
            "at {asked} ns; one of a lower queue was asked for later than the first and there "
            "before the second, at {meanwhile} ns"
        ),
    )


def _misplaced(evidence: Evidence, said: DataFrame) -> DataFrame:
    """Messages that were acknowledged in another queue than that of their priority."""
    levels = evidence.meta.levels
    last = looked_up("topic", {name: count - 1 for name, count in levels.items()})
    sent = said.where(F.col("source") == SEND).select("id", "topic", "priority")
    acked = said.where(F.col("source") == ACK).drop("priority")
    rows = (
        acked.join(sent.distinct(), ["id", "topic"])
        .withColumn("own", F.least("priority", last))
        .where("queue_id != own")
    )
    return violation(
        rows,
        "misplaced",
        text("sent with priority {priority}, whose queue is {own}, and acknowledged elsewhere"),
        severity=1,
    )


PROPERTY: Final = Property(
    16,
    violations,
    checked,
    "only a history says who was given what, and when",
    explained=("passed over",),
    needs_meta=True,
)
