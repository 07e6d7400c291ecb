"""Figures that pages tell are those of the code: each phrase is made from the bound it states."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger import limits as foundation
from dledger.raft import limits as raft
from mqbroker import limits as broker
from mqbroker.config import BrokerConfig
from mqclient import limits as client
from mqnamesrv import limits as namesrv

DOCS = Path(__file__).parents[2] / "docs"
DAY_S = 86_400
WORDS = {12: "twelve"}


def mib(size_bytes: int) -> str:
    """A size as pages write it."""
    return f"{size_bytes / foundation.MIB:,.0f} MiB"


def seconds(time_s: float) -> str:
    """A time as pages write it."""
    return f"{time_s:g} s"


GUARANTEES = (
    f"A message has {foundation.KEYS_PER_MESSAGE_MAX} keys at most",
    f"has not taken it for {seconds(client.MOVE_AFTER_S)}",
    f"within {seconds(namesrv.SETTLES_S)} of a name server's start",
    f"({namesrv.ABSENT_GROUPS_MAX} broker groups and"
    f" {mib(namesrv.KV_NAMESPACE_BYTES_MAX)} at most)",
    f"up to {client.BATCH_RECORDS_MAX:,} messages and {mib(client.SEND_BATCH_BYTES_MAX)}",
    f"A body has {mib(foundation.MESSAGE_BODY_BYTES_MAX)} at most",
    f"a body of up to {mib(client.LARGE_BODY_BYTES_MAX)}",
    f"stores parts of {mib(client.LARGE_PART_BYTES)}",
    f"A `poll` ends at {mib(client.UNDER_WAY_BYTES_MAX)} of bodies",
    f"failed to read the part for {seconds(client.LARGE_FETCH_S)}",
    f"compresses bodies from {client.COMPRESS_FROM_BYTES:,} bytes on",
    f"its last {broker.DEDUP_ENTRIES_MAX:,} appends",
    f"It comes within {seconds(broker.RETRY_SPAN_S)} of the copy",
    f"more than {broker.UNHEARD_COPIES_PER_KEY_MAX} times when its connection broke",
    f"gathered for {broker.COMMIT_GATHER_S * 1000:.0f} ms",
    f"holds {client.PREFETCH_RECORDS_MAX:,} messages or {mib(client.PREFETCH_BYTES_MAX)} at most",
    f"of {client.PREFETCH_RECORDS_PER_QUEUE_MAX:,} messages or"
    f" {mib(client.PREFETCH_BYTES_PER_QUEUE_MAX)} at most",
    f"more than {client.UNFINISHED_SPAN_PER_QUEUE_MAX:,} messages, the queue is not read on",
    f"That takes {seconds(2 * client.REQUEST_TIMEOUT_S)} at most",
    f"of `max_bytes` ({mib(client.UNDER_WAY_BYTES_MAX)}) in all",
    f"A delay has {client.RETRY_DELAY_S_MAX // DAY_S} days at most",
    f"gets the message again every {seconds(client.HANDLE_AGAIN_S)}",
    f"room for {foundation.PROPERTIES_BYTES_MAX:,} bytes of properties",
    f"| a send | {foundation.PROPERTIES_SENT_BYTES_MAX:,} bytes |",
    f"`ORIGIN_MESSAGE_ID` | {foundation.PROPERTIES_COPIED_BYTES_MAX:,} bytes |",
    f"waited for {seconds(client.POP_LAST_ANSWERS_S)} at most",
    f"`drain_timeout_s` ({seconds(client.DRAIN_S)})",
    f"kept for {BrokerConfig().file_reserved_time:g} hours by default",
    f"expire 0 to {broker.LIVES_STEP_MS} ms after that time",
    f"up to {client.WAITING_IN_FLIGHT_PER_GROUP_MAX} at a time to a broker group",
    f"A period has {seconds(broker.REPEAT_EVERY_MS_MIN / 1000)} to"
    f" {broker.REPEAT_EVERY_MS_MAX // 1000 // DAY_S} days, a body"
    f" {mib(broker.REPEATED_BODY_BYTES_MAX)} at most",
    f"{mib(broker.REPEATED_BYTES_PER_S_TOPIC_MAX)}/s for those of a topic,"
    f" {mib(broker.REPEATED_BYTES_PER_S_MAX)}/s for all; each counts for"
    f" {broker.REPEAT_COST_BYTES // 1024} KiB more",
    f"`transactionTimeOut` ({seconds(BrokerConfig().transaction_time_out / 1000)})",
)
EXACTLY_ONCE = (
    f"{mib(client.TRANSACTION_BYTES_MAX)}, {client.TRANSACTION_RECORDS_MAX:,} messages or"
    f" {client.TRANSACTION_TOPICS_MAX} topics",
    f"within `timeout_s` ({seconds(client.TRANSACTION_S)})",
    f"serve {WORDS[broker.STREAMS_PER_PRODUCER_MAX - client.BATCHES_IN_FLIGHT_PER_GROUP_MAX]}"
    " consumers at a time",
    f"an instance's {broker.STREAMS_PER_PRODUCER_MAX} *streams*",
    f"the last {broker.DEDUP_ENTRIES_MAX:,} appends",
    f"{broker.PRODUCERS_MAX:,} names; a name that is not used for"
    f" {broker.PRODUCER_KEPT_S // DAY_S} days",
    f"{broker.PARTS_PER_WRITE_MAX} topics and {broker.MOVES_PER_WRITE_MAX:,} queues in one write",
)
CONSUMING = (
    f"`revoke_timeout_s` ({seconds(client.REVOKE_S)})",
    f"waits {seconds(client.HANDOVER_S)} longer than its own",
    f"kept in the group for another {seconds(foundation.CLIENT_UNACKNOWLEDGED_S)}",
    f"Its locks end {seconds(broker.LOCK_S)} after it last renewed them",
    f"Within {seconds(client.LOCK_TRUSTED_S)} of having asked for its lock",
    f"gets the lock within {seconds(client.LOCK_RETRY_S)}",
    f"comes again from its own topic within {seconds(broker.POP_LOOK_S_MAX)}",
    f"from its arrival, {seconds(broker.POP_HOLD_S_MAX)} at most",
    f"{broker.POP_IN_FLIGHT_PER_QUEUE_MAX:,} messages of a queue,"
    f" {broker.POP_IN_FLIGHT_PER_TOPIC_MAX:,} of a topic",
    f"get through in {seconds(client.POP_AHEAD_S)}",
    f"at most {client.POP_AHEAD_MESSAGES_MAX:,} messages",
    f"`hold_s` ({client.POP_HOLD_S / 60:.0f} min)",
)
BROKER = (
    f"It reserves {broker.DESCRIPTORS_RESERVED} file descriptors for itself; the rest, up to"
    f" {foundation.CONNECTIONS_MAX:,}, is the limit",
    f"With a hard limit below {broker.DESCRIPTORS_RESERVED + foundation.CONNECTIONS_MIN}",
    f"{mib(foundation.MEMORY_BYTES_MAX)} at most. Above the bound",
    f"at {mib(foundation.EXPORT_BYTES_PER_S)}/s at most",
    f"With {broker.EXPORTS_MAX} copies below `exportDir`",
    f"if no majority confirms within {seconds(foundation.READ_TIMEOUT_S)}",
    f"(up to {broker.SENDS_TOGETHER_MAX}, or {broker.SENDS_TOGETHER_BYTES // 1024} KiB)",
    f"the last {broker.ASIDE_REASONS_KEPT} reasons",
    f"Up to {broker.SQL_CHARACTERS_MAX:,} characters are read, {broker.SQL_DEPTH_MAX} levels deep",
    f"up to {broker.SQL_MESSAGES_SCANNED_MAX} messages for a SQL92 filter",
    f"a heartbeat may have {mib(foundation.CLIENT_BODY_BYTES_MAX)}",
    f"belong to {broker.GROUPS_PER_CLIENT_MAX:,} consumer groups",
    f"acknowledged nothing for {seconds(foundation.CLIENT_UNACKNOWLEDGED_S)}",
    f"probed after {seconds(foundation.CLIENT_PROBED_AFTER_S)}",
    f"a server's host after {seconds(foundation.SERVER_UNACKNOWLEDGED_S)}",
    f"more than {broker.PULL_PIECES_MAX} separate pieces of the log is answered with"
    f" {mib(broker.PULL_JOINED_BYTES_MAX)}",
    f"kept for {broker.STATISTICS_ROWS_MAX:,} topics",
    f"silent for {seconds(broker.RELAY_S)} is reported",
    f"the newest, {broker.QUERY_MESSAGES_MAX} at most",
    f"looks at up to {broker.QUERY_CANDIDATES_MAX:,} messages with its key, and at no more after"
    f" {mib(broker.QUERY_CANDIDATES_BYTES_MAX)}",
    f"{broker.TIMER_DELAY_S_MAX // DAY_S} days at most) waits",
    f"{broker.TIMERS_MAX // 3 * 2:,} messages of a topic may wait at a time,"
    f" {broker.TIMERS_MAX:,} in all",
    f"{broker.TRANSACTIONS_MAX * 8 // 9:,} transactions of a topic may be open,"
    f" {broker.TRANSACTIONS_MAX:,} in all",
    f"at most every {seconds(broker.SNAPSHOT_INTERVAL_S)}, if",
    f"{mib(broker.SNAPSHOT_LOG_BYTES)} of log or {broker.SNAPSHOT_ENTRIES:,} entries",
    f"A stop waits {seconds(broker.STOP_SAVE_S)} for the snapshot",
)
BULK = (
    f"batches of up to {mib(client.BULK_BATCH_BYTES_MAX)}",
    f"`timeout_s` ({client.BULK_TIMEOUT_S:.0f} s)",
    f"`pending_bytes_max` ({mib(client.BULK_PENDING_BYTES_MAX)} of records)",
)
LOG = (
    f"the last {seconds(foundation.FLUSH_INTERVAL_S)} are lost",
    f"the last {seconds(foundation.ASYNC_SYNC_PERIOD_S)} or more are lost",
    f"in parts of {mib(foundation.STATE_PART_BYTES)}",
    f"at most {mib(foundation.PEER_IN_FLIGHT_BYTES_MAX)} under way",
    f"gets {mib(foundation.CATCH_UP_BYTES_PER_S)} a second",
    f"reads them again, at {mib(foundation.SCRUB_BYTES_PER_S)}",
    f"says so every {seconds(foundation.STILL_WAITING_S)}",
    f"otherwise within {seconds(foundation.CHECKPOINT_PERIOD_S)}",
    f"lacks at most {raft.LAG_ENTRIES_MAX:,}",
    f"in threads, for {seconds(raft.LOOKUP_S)} at most",
    f"missed {raft.ELECTION_TIMEOUT_MIN_S} to {raft.ELECTION_TIMEOUT_MAX_S} s after",
    f"more than {raft.REPLAY_ENTRIES_MAX:,} entries to apply",
    f"most {raft.PREFERRED_LAG_ENTRIES_MAX:,} entries behind for"
    f" {seconds(raft.PREFERRED_HEALTHY_S)}",
    f"no majority has said within {seconds(foundation.READ_TIMEOUT_S)}",
    f"{foundation.READS_PENDING_MAX:,} reads wait already",
)
CLAIMS = {
    "explanation/guarantees.md": GUARANTEES,
    "explanation/dledger.md": LOG,
    "how-to/bulk.md": BULK,
    "how-to/consuming.md": CONSUMING,
    "how-to/exactly-once.md": EXACTLY_ONCE,
    "reference/broker.md": BROKER,
}


@pytest.mark.parametrize("page", CLAIMS)
def test_figures_of_a_page_follow_the_code(page: str) -> None:
    """A bound that is changed changes the phrase, which the page then lacks."""
    text = " ".join((DOCS / page).read_text().split())

    assert [phrase for phrase in CLAIMS[page] if phrase not in text] == []
