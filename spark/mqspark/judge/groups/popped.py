"""Property 15: what a group's members pop is theirs for a time, and done for ever once it is done.

A delivery is named by its pop time, which grows with each delivery of a queue to a group: it says
which of two deliveries was later, without a clock.

**Done is done.** An ack *counted* if its answer says that the message was in flight by the delivery
that it names. Then that delivery was the last one: none to the same group has a higher pop time. So
with a message that was given up, which is a dead letter of the same group by the same entry: at
most as often as it is stored, and on every replica if that was answered. An ack that counted is an
entry of a log, and what it was about, if that is stored once, is no dead letter of that group.

**One delivery has one member.** Two members never note a message by the same pop time.

**What is passed was given.** The group's offset is the lowest that is not done. It never goes back,
from an answer to that of a question which was asked later; and it is never beyond the end of the
queue, unless a member has committed it. When n was the answer, each message below n, from the first
that the group was given, had been delivered to a member, which notes that before it acknowledges. A
message with an end of its own may pass unseen.

A queue whose offset was set on purpose says nothing. Members are given messages in any order.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.acts.entitled import of_lasting_groups
from mqspark.judge.answers.questions import with_highest
from mqspark.judge.evidence import Evidence
from mqspark.judge.logs import settled_in_logs
from mqspark.judge.violations import Property, text, together, violation
from mqspark.screening.tasks import COMMIT, GROUP_OFFSET, RESET
from mqspark.screening.testimony import (
    ACKED,
    BURIED,
    DEAD,
    DEAD_LETTERS,
    DELIVER,
    QUEUE,
    SEND,
    SETTLE,
    STORED,
)

_PLACE: Final = ("group", *QUEUE)


def violations(evidence: Evidence) -> DataFrame:
    """A row for each message that came again, was passed unseen or is wrongly buried."""
    if not evidence.summary.popped:
        return evidence.nothing()
    columns = (*_PLACE, "queue", "queue_offset", "t", "pop_time")
    deliveries = evidence.testimony.where(F.col("source") == DELIVER).select(*columns)
    popped = deliveries.where("pop_time IS NOT NULL").select(*_PLACE).distinct()
    resets = evidence.noted.where(F.col("kind") == RESET).select(*_PLACE).distinct()
    lasting = of_lasting_groups(evidence, popped)
    places = evidence.kept(lasting.join(F.broadcast(resets), list(_PLACE), "left_anti"))
    answers = evidence.kept(
        evidence.noted.where(F.col("kind") == GROUP_OFFSET)
        .join(F.broadcast(places), list(_PLACE), "left_semi")
        .select(*_PLACE, "queue", "node", F.coalesce("began", "t").alias("began"), "t", "offset")
    )
    sure = evidence.sure(answers)
    messages = _messages(evidence)
    return together(
        _again(evidence, messages, places),
        _shared(evidence, places),
        _back(evidence, answers),
        _passed(evidence, sure, deliveries, messages),
        _beyond(evidence, answers),
        _buried_twice(evidence, messages, resets),
        _unburied(evidence),
        _unlogged(evidence, places),
        _buried(evidence, places),
    )


def _is_buried() -> Column:
    return (F.col("source") == BURIED) & F.col("error").isNull()


def _buried_by() -> Column:
    """The group whose dead letters a topic has."""
    return F.expr(f"substring(topic, {len(DEAD_LETTERS) + 1})")


def _messages(evidence: Evidence) -> DataFrame:
    """Messages, a row each: its last delivery, the first that was done for certain, how many dead
    letters there are of it, and whether it has an end of its own."""
    source = F.col("source")
    settled = (source == SETTLE) & F.col("counted")
    buried = _is_buried()
    return evidence.kept(
        evidence.testimony.where(source.isin(SEND, DELIVER, SETTLE, BURIED))
        .groupBy("identity")
        .agg(
            F.first("id").alias("id"),
            F.max(F.when(source.isin(DELIVER, SETTLE), F.col("broker"))).alias("broker"),
            F.max(F.when(source == DELIVER, F.col("pop_time"))).alias("popped_max"),
            F.min(F.when(settled, F.col("pop_time"))).alias("settled_min"),
            F.count_if(buried).alias("buried_versions"),
            F.bool_or(F.col("expires").isNotNull()).alias("ends"),
        )
    )


def _again(evidence: Evidence, messages: DataFrame, places: DataFrame) -> DataFrame:
    """Messages that were handed out after an ack of theirs had counted."""
    again = messages.where("popped_max > settled_min").select("identity")
    source = F.col("source")
    done = F.when((source == SETTLE) & F.col("counted"), F.col("pop_time"))
    rows = (
        evidence.testimony_of(again)
        .where(source.isin(SETTLE, DELIVER))
        .join(F.broadcast(places), list(_PLACE), "left_semi")
        .groupBy("id", *_PLACE, "queue_offset")
        .agg(
            F.min(done).alias("done"),
            F.max(F.when(source == DELIVER, F.col("pop_time"))).alias("last"),
        )
        .where("last > done")
    )
    return violation(
        evidence.kept(rows),
        "again",
        text("group {group} was through with it by the delivery {done}, and got it by {last}"),
    )


def _shared(evidence: Evidence, places: DataFrame) -> DataFrame:
    """Deliveries that several members say were theirs."""
    rows = (
        evidence.testimony.where((F.col("source") == DELIVER) & F.col("pop_time").isNotNull())
        .join(F.broadcast(places), list(_PLACE), "left_semi")
        .groupBy("id", *_PLACE, "queue_offset", "pop_time")
        .agg(F.array_sort(F.collect_set("client")).alias("clients"))
        .where(F.size("clients") > 1)
        .withColumn("members", F.array_join("clients", ", "))
    )
    return violation(
        evidence.kept(rows),
        "shared",
        text("{members} of group {group} all got it by the delivery {pop_time}"),
    )


def _back(evidence: Evidence, answers: DataFrame) -> DataFrame:
    """Answers that are below an earlier one."""
    asked = answers.select(*_PLACE, F.col("began").alias("at"), "offset", "t")
    known = answers.select(*_PLACE, F.col("t").alias("at"), F.col("offset").alias("known"))
    low = evidence.kept(with_highest(asked, known, *_PLACE).where("highest > offset"))
    return violation(
        low.withColumn("queue_offset", F.col("offset")),
        "back",
        text(
            "group {group} was at {offset} at {t} ns, though it had been at {highest} when that "
            "was asked, at {at} ns"
        ),
        severity=1,
    )


def _passed(
    evidence: Evidence, answers: DataFrame, deliveries: DataFrame, messages: DataFrame
) -> DataFrame:
    """Messages below an offset that was answered, and that nobody had been given by then."""
    first = evidence.kept(
        deliveries.groupBy(*_PLACE, "queue_offset").agg(F.min("t").alias("first_t"))
    )
    begins = first.groupBy(*_PLACE).agg(F.min("queue_offset").alias("begin"))
    groups = evidence.kept(
        answers.select(*_PLACE, "queue").distinct().join(F.broadcast(begins), list(_PLACE))
    )
    slots = (
        evidence.reach_back(evidence.slots)
        .select("queue", "queue_offset", "identity")
        .join(F.broadcast(groups), "queue")
        .where("queue_offset >= begin")
        .join(messages.select("identity", "ends"), "identity")
        .groupBy(*_PLACE, "queue_offset")
        .agg(F.bool_or("ends").alias("ends"))
        .where("NOT ends")
        .join(first, [*_PLACE, "queue_offset"], "left")
    )
    above_all = answers.select(
        *_PLACE, F.col("offset").alias("queue_offset"), F.col("t").alias("answer_t")
    )
    # An answer is about what is below it: of equal ones the messages come first.
    downwards = Window.partitionBy(*_PLACE).orderBy(
        F.col("queue_offset").desc(), F.col("answer_t").isNotNull()
    )
    above = downwards.rowsBetween(Window.unboundedPreceding, -1)
    unseen = (
        slots.select(*_PLACE, "queue_offset", "first_t")
        .unionByName(above_all, allowMissingColumns=True)
        .withColumn("passed_t", F.min("answer_t").over(above))
        .where("answer_t IS NULL AND passed_t IS NOT NULL")
        .where("first_t IS NULL OR first_t > passed_t")
    )
    return violation(
        evidence.kept(unseen),
        "passed",
        text("group {group} was behind it at {passed_t} ns, and no member had been given it"),
    )


def _beyond(evidence: Evidence, answers: DataFrame) -> DataFrame:
    """Answers that are above the end of the queue, where nobody has committed any offset."""
    commits = evidence.noted.where(F.col("kind") == COMMIT).select(*_PLACE).distinct()
    popped = answers.join(F.broadcast(commits), list(_PLACE), "left_anti")
    return violation(
        evidence.beyond_the_end(popped).withColumn("queue_offset", F.col("offset")),
        "beyond",
        text("group {group} was at {offset} at {t} ns, and {end} is the end in all logs"),
        replica=F.col("node"),
        severity=1,
    )


def _buried_twice(evidence: Evidence, messages: DataFrame, resets: DataFrame) -> DataFrame:
    """Messages that are in one topic of dead letters, on one replica, more often than they are
    stored, though no tool had their group go back."""
    several = messages.where("buried_versions > 1").select("identity")
    said = evidence.testimony_of(several)
    source, named = F.col("source"), ["identity", "broker", "group"]
    given_anew = (
        said.where(source.isin(DELIVER, SETTLE))
        .join(F.broadcast(resets), list(_PLACE), "left_semi")
        .select(*named)
    )
    stored = said.where(source == STORED).groupBy("identity")
    letters = (
        said.where(_is_buried())
        .withColumn("group", _buried_by())
        .join(given_anew, named, "left_anti")
        .join(F.broadcast(evidence.members_table), "broker")
        .where(F.expr("getbit(holders, bit) = 1"))
        .groupBy("identity", "id", "broker", "group", "replica", "topic")
        .agg(F.count("*").alias("letters"), F.collect_list("position").alias("positions"))
        .where("letters > 1")
    )
    rows = (
        of_lasting_groups(evidence, letters)
        .join(stored.agg(F.count_distinct("position").alias("copies")), "identity", "left")
        .where("letters > greatest(1, coalesce(copies, 1))")
        .drop("identity", "copies", "group")
    )
    return violation(
        evidence.kept(rows),
        "buried twice",
        text("{letters} dead letters of it are in {topic}"),
        positions=F.col("positions"),
    )


def _unburied(evidence: Evidence) -> DataFrame:
    """Dead letters of which a member got an answer, and that are not on a replica."""
    answers = (
        _settled(evidence, DEAD)
        .groupBy("identity", "id", "broker", "group")
        .agg(F.min("t").alias("dead_t"))
    )
    rows = (
        answers.join(_letters(evidence), ["identity", "broker", "group"], "left")
        .join(F.broadcast(evidence.members_table), "broker")
        .where("begin = 0 AND getbit(coalesce(holders, 0), bit) = 0")
    )
    return violation(
        evidence.kept(rows),
        "unburied",
        text(
            "given up by group {group}, as was answered at {dead_t} ns, and not among its dead "
            "letters"
        ),
    )


def _letters(evidence: Evidence) -> DataFrame:
    """Which replicas hold a message among the dead letters of a group: identity, broker, group,
    holders."""
    return (
        evidence.testimony.where(_is_buried())
        .withColumn("group", _buried_by())
        .groupBy("identity", "broker", "group")
        .agg(F.bit_or("holders").alias("holders"))
    )


def _buried(evidence: Evidence, places: DataFrame) -> DataFrame:
    """Dead letters of what a group was through with by an ack, and that is stored once."""
    acked = (
        _settled(evidence, ACKED)
        .join(F.broadcast(places), list(_PLACE), "left_semi")
        .groupBy("identity", "id", "broker", "group")
        .agg(F.min("t").alias("acked_t"))
    )
    rows = evidence.kept(acked.join(_letters(evidence), ["identity", "broker", "group"]))
    if rows.isEmpty():
        return evidence.nothing()
    stored = evidence.testimony_of(rows.select("identity")).where(F.col("source") == STORED)
    once = stored.groupBy("identity").agg(F.count_distinct("position").alias("copies"))
    return violation(
        rows.join(once.where("copies = 1"), "identity", "left_semi")
        .join(F.broadcast(evidence.members_table), "broker")
        .where(F.expr("getbit(holders, bit) = 1")),
        "buried",
        text(
            "group {group} was through with it by an ack, as was answered at {acked_t} ns, and it "
            "is among its dead letters"
        ),
    )


def _unlogged(evidence: Evidence, places: DataFrame) -> DataFrame:
    """Acknowledgements that counted, and no log has them."""
    if not evidence.whole:
        return evidence.nothing()
    done = settled_in_logs(evidence)
    acked = _settled(evidence, ACKED).where(F.col("broker").isin(*evidence.whole))
    rows = acked.join(F.broadcast(places), list(_PLACE), "left_semi")
    return violation(
        evidence.kept(rows.join(done, ["group", "queue", "queue_offset", "pop_time"], "left_anti")),
        "unlogged",
        text(
            "group {group} was answered at {t} ns that it is through with it by the delivery "
            "{pop_time}, and no log says so"
        ),
        severity=1,
    )


def _settled(evidence: Evidence, how: str) -> DataFrame:
    """Messages that by answers to members are settled in this way."""
    counted = (F.col("source") == SETTLE) & F.col("counted")
    return evidence.testimony.where(counted & (F.col("how") == how))


PROPERTY: Final = Property(
    15,
    violations,
    lambda evidence: evidence.summary.popped,
    "only a history says who was given what, and was through with it",
    explained=("again", "back", "passed", "buried"),
)
