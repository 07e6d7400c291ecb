"""Properties 10 and 11: transactions and delays, whose messages wait before their topic has them.

**10**: committed transactions are visible whole, rolled-back ones never, each ends in time. The
send of a transactional message says how its producer, and whoever answers for it, will end the
transaction: by `commit` or by `rollback`; `resolve` says that the producer got an answer that it
ended so. A message is visible when its topic has it, in any replica's log, or a consumer was given
it. One that nobody ever said "commit" of must never be visible, not even in an unsettled tail. None
is in its topic when it is sent, as an acknowledgement would say, or before it waits. One that ended
by a commit is in its topic on every replica. One to be committed is visible at last, though its
producer may have been unable to say so: the broker asks. More than a bound after its
acknowledgement, its end and the last fault of its broker it is late, or, at the run's end, open. A
rollback leaves nothing to see: that it ended is not judged. Bodies are for property 2 to say.

**11**: no delayed message comes early; how late it comes is bounded after healing. A send that asks
for a delay says when the message is `due`: the harness's clock at the send, and the delay.
Delivered earlier, it is early; brokers count whole milliseconds by clocks that are set now and
then, which is allowed for. One that is acknowledged in its topic before its time, or is there
before it waits, is early, too. It is late if it came, or by the end of the run had not come, into
its topic more than a bound after it was due, after it was acknowledged and after the last fault was
injected into a node of its broker or healed. A send without an acknowledgement may never come. What
is in its topic and was not delivered yet is for properties 4 and 8 to say; what waited when its
topic was deleted comes to nothing. A message that says when
it `expires` is delivered to nobody after that, but for a moment in which a consumer stands still.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

from mqspark.judge.evidence import Evidence
from mqspark.judge.violations import Property, counted, text, together, violation
from mqspark.limits import (
    CLOCK_SLACK_MS,
    CLOCK_SLACK_SHARE,
    DELAY_LATE_S_MAX,
    EXPIRED_S_MAX,
    TRANSACTION_S_MAX,
)
from mqspark.screening.statements import COMMITTED, ROLLED_BACK
from mqspark.screening.testimony import DELIVER, SEND

_NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_CAME: Final = "read_t IS NOT NULL OR versions = 0 AND (begin = 0 OR held_position_min >= begin)"
"""When it came is known, or that it never did; not so of what is in its topic and unread, or may
have been removed there."""
_BEFORE: Final = "begin = 0 AND position_min < held_position_min"
"""The topic has the message before the place where it waits."""


def transaction_violations(evidence: Evidence) -> DataFrame:
    """Property 10: a row for each that shows wrongly, and each replica where one does not."""
    if not evidence.screened.totals["transactions"]:
        return evidence.nothing()
    begun = _waiting(evidence, "outcome IS NOT NULL")
    seen = (F.col("versions") > 0) | F.col("read_t").isNotNull()
    shown = begun.where((F.col("outcome") == ROLLED_BACK) & seen)
    at_once = begun.where(F.col("ack_t").isNotNull() | F.expr(_BEFORE))
    to_commit = begun.where(F.col("outcome") == COMMITTED)
    hidden = (
        to_commit.where(F.col("resolved") == COMMITTED)
        .drop("begin")
        .join(F.broadcast(evidence.members_table), "broker")
        .where("getbit(holders, bit) = 0 AND (begin = 0 OR held_position_min >= begin)")
    )
    awaited = to_commit.withColumn("at", F.greatest("waiting_t", "resolved_t"))
    late = _still_due(evidence, _overdue(evidence, awaited, TRANSACTION_S_MAX))
    return together(
        violation(
            evidence.with_ids(shown),
            "visible",
            F.lit("the transaction was to be rolled back, and its topic has the message"),
        ),
        violation(
            evidence.with_ids(at_once),
            "visible",
            F.lit("its topic had the message before the transaction could end"),
        ),
        violation(
            evidence.with_ids(hidden),
            "hidden",
            text("committed at {resolved_t} ns, and not in its topic"),
        ),
        _late(evidence.with_ids(late), "open", "to be committed since {at} ns"),
    )


def delay_violations(evidence: Evidence) -> DataFrame:
    """Property 11: a row for each message that came early, late, not at all, or after its end."""
    found = []
    if evidence.screened.totals["delayed"]:
        found.append(_untimely(evidence))
    if evidence.summary.ending and not evidence.screened.unsure:
        found.append(_expired(evidence))
    return together(*found) if found else evidence.nothing()


def _untimely(evidence: Evidence) -> DataFrame:
    delayed = _waiting(evidence, "due IS NOT NULL AND send_t IS NOT NULL")
    slack = CLOCK_SLACK_MS * _NS_PER_MS + CLOCK_SLACK_SHARE * (F.col("due") - F.col("send_t"))
    seen_t = F.least("read_t", "ack_t")
    early = delayed.where((seen_t < F.col("due") - slack) | F.expr(_BEFORE))
    awaited = delayed.withColumn("at", F.greatest("due", "waiting_t"))
    late = _still_due(evidence, _overdue(evidence, awaited, DELAY_LATE_S_MAX))
    return together(
        violation(
            evidence.with_ids(early),
            "early",
            F.when(
                seen_t < F.col("due"),
                text("in its topic at {seen_t} ns, due at {due} ns", seen_t=seen_t),
            ).otherwise(F.lit("its topic had the message before it waited")),
        ),
        _late(evidence.with_ids(late), "missing", "due since {at} ns"),
    )


def _expired(evidence: Evidence) -> DataFrame:
    source, grace_ns = F.col("source"), int(EXPIRED_S_MAX * _NS_PER_S)
    rows = (
        evidence.testimony.where(source.isin(SEND, DELIVER))
        .groupBy("identity")
        .agg(
            F.first("id").alias("id"),
            F.max("expires").alias("expires"),
            F.max(F.when(source == DELIVER, F.col("t"))).alias("read_last_t"),
            F.max("broker").alias("broker"),
        )
        .where(F.col("read_last_t") > F.col("expires") + grace_ns)
    )
    return violation(
        evidence.kept(rows),
        "expired",
        text("delivered at {read_last_t} ns, to be delivered until {expires} ns"),
    )


def _waiting(evidence: Evidence, condition: str) -> DataFrame:
    """Messages that had to wait."""
    members = evidence.members
    return evidence.kept(
        evidence.waiters.where(condition)
        .withColumn("broker", members.broker)
        .withColumn("begin", members.by_number(lambda name: evidence.begins[name]))
    )


def _overdue(evidence: Evidence, rows: DataFrame, within_s: float) -> DataFrame:
    """The `rows`, acknowledged and awaited since `at`, that came too late, or not at all.

    `until` is when one was delivered, or the end of the run if it never came. Time counts from
    `at`, or from the last fault (its begin or its end) on the broker before that.
    """
    within_ns = int(within_s * _NS_PER_S)
    run_end = evidence.noted.where("kind = 'end'").agg(F.max("t").alias("run_end"))
    late = evidence.kept(
        rows.where(F.col("waiting_t").isNotNull() & F.expr(_CAME))
        .crossJoin(F.broadcast(run_end))
        .withColumn("until", F.coalesce("read_t", "run_end"))
        .where(F.col("until") > F.col("at") + within_ns)
    )
    faults = evidence.noted.where("kind = 'fault'").select(
        F.col("broker").alias("hurt"), F.col("t").alias("fault_t")
    )
    before = (F.col("hurt") == F.col("broker")) & (F.col("fault_t") <= F.col("until"))
    return (
        late.join(F.broadcast(faults), before, "left")
        .groupBy(*late.columns)
        .agg(F.max("fault_t").alias("fault_t"))
        .where(F.col("until") > F.coalesce("fault_t", F.lit(0)) + within_ns)
    )


def _still_due(evidence: Evidence, rows: DataFrame) -> DataFrame:
    """Rows whose topic was not deleted while they waited: what waits belongs to a life."""
    if evidence.lives is None:
        return rows
    gone = evidence.session.createDataFrame(
        [(*place, at) for place, ends in evidence.lives.lives.ends.items() for at in ends],
        "broker string, topic string, gone_at long",
    )
    sent = evidence.testimony_of(rows.select("identity")).where(F.col("source") == SEND)
    dropped = (
        rows.where("read_t IS NULL")
        .join(sent.select("identity", "topic").distinct(), "identity")
        .join(F.broadcast(gone), ["broker", "topic"])
        .where("gone_at > held_position_min")
    )
    return evidence.kept(rows.join(dropped.select("identity"), "identity", "left_anti"))


def _late(rows: DataFrame, never: str, since: str) -> DataFrame:
    """Violations: `never` for what did not come, `late` for the others."""
    absent = F.col("read_t").isNull()
    return violation(
        rows,
        F.when(absent, never).otherwise("late"),
        F.when(
            absent, text(since + ", and not in its topic at {until} ns, the run's end")
        ).otherwise(text(since + ", delivered at {until} ns")),
        severity=1,
    )


def delays_checked(evidence: Evidence) -> int:
    """How many messages had to wait, or have an end."""
    return int(evidence.screened.totals["delayed"]) + evidence.summary.ending


TRANSACTIONS: Final = Property(
    10,
    transaction_violations,
    counted("transactions"),
    "how a transaction was to end, only a history says",
    explained=("late", "open"),
)


DELAYS: Final = Property(
    11,
    delay_violations,
    delays_checked,
    "when messages were due and came, only a history says",
    explained=("late", "missing"),
)
