"""Property 17: what a tool has set holds, and nothing changes that nobody has asked to change.

A tool's act came about at some moment from `began` to `t`, if it was answered; else at any moment
from `began` on. So what a topic or a group was set to holds from the act's answer until another act
on it begins, if none was under way at the same time. Four statements follow.

**What is forbidden is not done.** No send that was begun while a topic could not be written is
acknowledged meanwhile. No message that was sent, or popped, while its topic could not be read, or a
group was disabled, is delivered meanwhile (to that group). What had been sent before may have been
on its way. Acts are on one broker group, and so is what they forbid.

**What is gone is gone.** No message of a topic's earlier life is popped by a request that was made
after the deletion had been answered.

**What was answered is in a log**: each act, with what it set. Only of logs that are whole.

**What is in a log was asked for**: no log deletes a topic more often than a history that notes all
acts (`tells`) has asked for, and none deletes one of its groups, disables one, or takes a
permission from one of its topics, if no act asked for that. A request that a client repeats may
delete a topic twice, but not one that was made again in between. Where replicas differ, a deletion
may have another position in each, so from there on only those are counted that nobody has asked for
at all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.acts.entitled import DELETE_GROUP
from mqspark.judge.evidence import Evidence
from mqspark.judge.lives import own_topic
from mqspark.judge.violations import Property, text, together, violation
from mqspark.screening.changes import DELETE_TOPIC, KINDS
from mqspark.screening.tasks import ACT, RESET
from mqspark.screening.testimony import ACK, DELIVER, SEND, WAITING

ACTS: Final = "acts"
_PUT_TOPIC, _PUT_GROUP = "put-topic", "put-group"
_READ, _WRITE = 4, 2
_ALL: Final = _READ | _WRITE
_FOR_EVER: Final = 2**62
_SINCE: Final = " since {since} ns, and it was sent or asked for at {sent_t} ns"


def checked(evidence: Evidence) -> int:
    """How many acts and resets the history notes, and deletions of its topics the logs have."""
    kinds = evidence.summary.notes
    deleted = sum(len(ends) for ends in evidence.screened.lives.ends.values())
    return kinds.get(ACT, 0) + kinds.get(RESET, 0) + deleted


def violations(evidence: Evidence) -> DataFrame:
    """A row for each message that was taken or given though forbidden, and each act in doubt."""
    found = []
    if evidence.summary.notes.get(ACT):
        acts = evidence.kept(evidence.noted.where(F.col("kind") == ACT))
        found += [*_forbidden(evidence, acts), _unlogged(evidence, acts)]
        if evidence.lives is not None:
            found.append(_revived(evidence, acts))
    if ACTS in evidence.meta.tells:
        found += [_unasked(evidence)] if evidence.lives is not None else []
        found += _unforbidden(evidence)
    return together(*found) if found else evidence.nothing()


def _spans(acts: DataFrame, name: str, holds: Column) -> DataFrame:
    """Where and when it holds for certain: broker, `name`, since, until (both excluded)."""
    own = acts.where(F.col(name).isNotNull())
    others = own.select(
        "broker",
        name,
        F.col("began").alias("other_began"),
        F.when(F.col("done"), F.col("t")).otherwise(_FOR_EVER).alias("other_t"),
    )
    setting = own.where(F.col("done") & holds).withColumn("number", F.monotonically_increasing_id())
    # An act is among the others itself, and begins before it is answered.
    meanwhile = (F.col("other_t") > F.col("began")) & (
        (F.col("other_began") != F.col("began")) | (F.col("other_t") != F.col("t"))
    )
    return (
        setting.join(others, ["broker", name], "left")
        .groupBy("number", "broker", name, F.col("t").alias("since"))
        .agg(F.min(F.when(meanwhile, F.col("other_began"))).alias("until"))
        .fillna(_FOR_EVER, ["until"])
        .where("since < until")
        .drop("number")
    )


def _forbidden(evidence: Evidence, acts: DataFrame) -> list[DataFrame]:
    perm = F.col("perm")
    of_topics = acts.where(F.col("act").isin(_PUT_TOPIC, DELETE_TOPIC))
    is_set = (F.col("act") == _PUT_TOPIC) & perm.isNotNull()
    closed = _spans(of_topics, "topic", is_set & (perm.bitwiseAND(_WRITE) == 0))
    unread = _spans(of_topics, "topic", is_set & (perm.bitwiseAND(_READ) == 0))
    of_groups = acts.where(F.col("group").isNotNull())
    disabled = _spans(of_groups, "group", (F.col("act") == _PUT_GROUP) & ~F.col("enabled"))
    said = evidence.testimony.withColumn("topic", own_topic())
    sent = said.where(F.col("source") == SEND).groupBy("id").agg(F.min("t").alias("sent_t"))
    acked = said.where(F.col("source").isin(ACK, WAITING)).join(sent, "id")
    given = (
        said.where(F.col("source") == DELIVER)
        .join(sent, "id", "left")
        .withColumn("sent_t", F.greatest("sent_t", "asked"))
    )
    within = (F.col("sent_t") > F.col("since")) & (F.col("t") < F.col("until"))
    found = []
    for rows, given_spans, name, what, detail in (
        (
            acked,
            closed,
            "topic",
            "admitted",
            "acknowledged at {t} ns: its topic could not be written",
        ),
        (given, unread, "topic", "shown", "delivered at {t} ns: its topic could not be read"),
        (given, disabled, "group", "served", "delivered at {t} ns: group {group} was disabled"),
    ):
        spans = evidence.kept(given_spans)
        if not spans.isEmpty():
            kept = evidence.kept(rows.join(F.broadcast(spans), ["broker", name]).where(within))
            found.append(violation(kept, what, text(detail + _SINCE)))
    return found


def _revived(evidence: Evidence, acts: DataFrame) -> DataFrame:
    """Messages of an earlier life that were asked for when it had been deleted, where each deletion
    of the log is an act that was answered."""
    assert evidence.lives is not None
    deleted = acts.where(F.col("act") == DELETE_TOPIC).groupBy("broker", "topic")
    rows = deleted.agg(
        F.count("*").alias("acts"),
        F.count_if(F.col("done")).alias("answered"),
        F.max("t").alias("gone_t"),
    ).collect()
    ends = evidence.lives.lives.ends
    gone = [
        (row.broker, row.topic, row.gone_t, ends[row.broker, row.topic][-1])
        for row in rows
        if row.acts == row.answered == len(ends.get((row.broker, row.topic), ()))
    ]
    if not gone:
        return evidence.nothing()
    last = evidence.session.createDataFrame(
        gone, "broker string, own string, gone_t long, gone_at long"
    )
    placed = (
        evidence.testimony.where(F.col("source") == ACK)
        .groupBy("id")
        .agg(F.max("position").alias("position"))
    )
    popped = evidence.testimony.where((F.col("source") == DELIVER) & F.col("asked").isNotNull())
    again = (
        popped.drop("position")
        .withColumn("own", own_topic())
        .join(F.broadcast(last), ["broker", "own"])
        .join(placed, "id")
        .where("asked > gone_t AND position < gone_at")
    )
    return violation(
        evidence.kept(again),
        "revived",
        text("popped at {t} ns, asked for at {asked} ns: its topic was gone since {gone_t} ns"),
        positions=[F.col("position")],
    )


def _unlogged(evidence: Evidence, acts: DataFrame) -> DataFrame:
    """Acts that were answered, and no log has them."""
    logged = {
        (broker, act, whom, each)
        for broker, act, whom, value, _ in evidence.summary.acts
        for each in (value, -1)
    }
    value = F.coalesce("perm", F.col("enabled").cast("long"), F.lit(-1)).alias("value")
    whom = F.coalesce("topic", "group")
    rows = acts.where(F.col("done")).select("*", whom.alias("whom"), value).collect()
    lost = [
        (row.broker, row.topic, row.act, row.whom, row.t)
        for row in rows
        if (row.broker, row.act, row.whom, row["value"]) not in logged
        and row.act in KINDS
        and row.broker in evidence.whole
    ]
    return violation(
        evidence.session.createDataFrame(
            lost, "broker string, topic string, act string, whom string, t long"
        ),
        "unlogged",
        text("{act} of {whom} was answered at {t} ns, and no log has it"),
        severity=1,
    )


def _unasked(evidence: Evidence) -> DataFrame:
    """Deletions that a log has of a topic, and nobody has asked for so many."""
    assert evidence.lives is not None
    acts = evidence.noted.where((F.col("kind") == ACT) & (F.col("act") == DELETE_TOPIC))
    asked = Counter((row.broker, row.topic) for row in acts.select("broker", "topic").collect())
    same = evidence.common_ends
    made = defaultdict[tuple[str, str], list[int]](list)
    for broker, act, whom, _, position in evidence.summary.acts:
        if act == _PUT_TOPIC:
            made[broker, whom].append(position)
    rows = [
        (*place, asked[place], [*ends])
        for place, ends in evidence.lives.lives.ends.items()
        if not asked[place]
        or _deletions([at for at in ends if at < same[place[0]]], made[place]) > asked[place]
    ]
    return violation(
        evidence.session.createDataFrame(
            rows, "broker string, topic string, asked long, positions array<bigint>"
        ),
        "unasked",
        text("the log deletes the topic, and the history notes {asked} acts that asked for it"),
        positions=F.col("positions"),
    )


def _unforbidden(evidence: Evidence) -> list[DataFrame]:
    """Deletions of groups and prohibitions that a log has, and nobody has asked for."""
    groups, topics = {*evidence.summary.groups}, {*evidence.meta.topics}

    def forbids(act: str, whom: str, value: int) -> bool:
        if act == _PUT_TOPIC:
            return whom in topics and value & _ALL != _ALL
        return whom in groups and (act == DELETE_GROUP or (act == _PUT_GROUP and value == 0))

    logged = sorted(each for each in evidence.summary.acts if forbids(*each[1:4]))
    if not logged:
        return []
    asked = {
        (row.broker, row.act, row.topic or row.group, value)
        for row in evidence.noted.where(F.col("kind") == ACT).collect()
        for value in ({row.perm} if row.act == _PUT_TOPIC else {row.enabled})
    }
    unasked = defaultdict[tuple[str, str, str, int], list[int]](list)
    for broker, act, whom, value, position in logged:
        if not {(broker, act, whom, known) for known in (value, None)} & asked:
            unasked[broker, act, whom, value].append(position)
    rows = [(*what, positions) for what, positions in unasked.items()]
    return [
        violation(
            evidence.session.createDataFrame(
                rows,
                "broker string, act string, topic string, value long, positions array<bigint>",
            ),
            "unasked",
            text("the log has {act} of {topic} ({value}), and no act of the history asked for it"),
            positions=F.col("positions"),
        )
    ]


def _deletions(ends: Sequence[int], made: Sequence[int]) -> int:
    """How many deletions a topic has, without those of what had not been made again."""
    return bool(ends) + sum(
        any(before < position < end for position in made) for before, end in pairwise(ends)
    )


PROPERTY: Final = Property(
    17,
    violations,
    checked,
    "only a history says what tools were told",
    explained=("admitted", "shown", "served", "revived", "unasked"),
)
