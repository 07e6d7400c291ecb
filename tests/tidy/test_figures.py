"""Figures on pages are those of the code: each phrase is made from the bound it states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dledger import limits as foundation
from dledger.metrics import limits as metrics
from dledger.raft import limits as raft
from mqbroker import limits as broker
from mqbroker.config import BrokerConfig
from mqbroker.flow import limits as flow
from mqclient import limits as client
from mqnamesrv import limits as namesrv

DOCS = Path(__file__).parents[2] / "docs"
DAY_S = 86_400
WORDS = {2: "two", 8: "eight", 12: "twelve", 50: "a fiftieth", 1_000_000: "a million"}


def kib(size_bytes: int) -> str:
    """A size as pages write it."""
    return f"{size_bytes / foundation.KIB:,.0f} KiB"


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
    f"kept for {flow.STATISTICS_ROWS_MAX:,} topics",
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
_SHARED_KEYS = broker.KEYS_PER_BATCH_MAX // (
    foundation.KEYS_PER_MESSAGE_MAX + broker.KEYS_PER_MESSAGE_WEIGHT
)
SECURITY = (
    f"a secret shorter than {foundation.SECRET_CHARACTERS_MIN} characters",
    f"`secretFile` may hold {WORDS[foundation.SECRETS_MAX]} secrets",
    f"Servers look at the file every {WORDS[int(foundation.SECRET_LOOK_S)]} seconds",
    f"Every {WORDS[int(foundation.TLS_LOOK_S)]} seconds, a server looks",
    f"(`certificate ends`) {foundation.TLS_EXPIRES_SOON_S / DAY_S:.0f} days before",
    f"A handshake may take {seconds(foundation.TLS_HANDSHAKE_S)} and"
    f" {kib(foundation.TLS_HANDSHAKE_BYTES_MAX)}",
    f"charged {kib(foundation.TLS_CONNECTION_BYTES)} more",
    f"within 2^{foundation.TERM_JUMP_MAX.bit_length() - 1} of the last term",
    f"for {seconds(foundation.STAMP_AGE_S)}. The clocks of clients and servers may differ by at"
    f" most {seconds(foundation.STAMP_AGE_S)}",
    f"A body of {kib(foundation.LONG_BODY_BYTES)} or more is hashed by BLAKE3",
    f"After {foundation.WRONG_SIGNATURES_MAX} wrong signatures, a connection is closed",
    f"may have {foundation.WRONG_PROOFS_AT_ONCE} wrong signatures verified at once, then"
    f" {foundation.WRONG_PROOFS_PER_S} a second",
    f"one more for each {kib(foundation.WRONG_PROOF_BYTES)}",
    f"refuses {foundation.UNKNOWN_REFUSED_PER_S} requests a second",
    f"at most {WORDS[foundation.AUDIT_FILES_MAX]} files of {mib(foundation.AUDIT_FILE_BYTES)}",
    f"A term is at most 2^{foundation.NUMBER_MAX.bit_length()} - 1, and at most"
    f" 2^{foundation.TERM_JUMP_MAX.bit_length() - 1} ahead",
    f"forgets the term {WORDS[int(namesrv.TERM_MEMORY_S / 60)]} minutes after",
    f"names must have 1 to {namesrv.NAME_CHARACTERS_MAX} printable characters",
    f"number of queues (0 to {namesrv.QUEUES_PER_TOPIC_MAX:,}, as clients",
    f"- {namesrv.TOPICS_PER_GROUP_MAX:,} topics of a broker group;",
    f"- {WORDS[namesrv.TOPIC_ROWS_MAX]} topics of all broker groups together",
    f"- {namesrv.TOPICS_MAX:,} different names of brokers that have not proven",
    f"- topics of {namesrv.ABSENT_GROUPS_MAX} broker groups without members",
    f"{namesrv.ABSENT_ROWS_MAX:,} of their topics are kept",
    f"The bounds are {kib(namesrv.KV_VALUE_BYTES_MAX)} for a value,"
    f" {mib(namesrv.KV_NAMESPACE_BYTES_MAX)} for a namespace as it is answered, and"
    f" {mib(namesrv.KV_BYTES_MAX)} in all",
    f"An answer above {mib(namesrv.ANSWER_BYTES_MAX)} is refused",
    f"closes the connection after {seconds(raft.HANDSHAKE_TIMEOUT_S)} at the latest",
    f"closed after at most {kib(raft.HELLO_BYTES_MAX)}",
    f"At most {foundation.HANDSHAKES_MAX} wait",
    f"At most {namesrv.BROKER_GROUPS_MAX:,} broker groups; brokers that prove",
    f"keeps at most {broker.EXPORTS_MAX}, never replaces an existing file, and leaves room for"
    f" {WORDS[foundation.EXPORT_SEGMENTS_FREE_MIN]} segments",
    f"have a budget of {foundation.LOOP_TURN_S * 1000:.0f} ms",
    f"A turn above {foundation.LOOP_STALL_S * 1000:.0f} ms causes a warning",
    f"their bytes stay for {seconds(foundation.FRAME_COMPLETION_S)}, 64 GiB with"
    f" {foundation.CONNECTIONS_MAX:,} connections",
    f"each counts {kib(foundation.UNANSWERED_REQUEST_BYTES)}, a large one its size",
    f"Bound: {broker.GROUPS_PER_CLIENT_MAX:,} consumer groups a connection",
    f"filters of {broker.SQL_CHARACTERS_KEPT // 1024} Ki characters together",
    f"a client id has at most {broker.CLIENT_ID_BYTES_MAX} bytes; there are"
    f" {broker.LOCKS_MAX:,} locks",
    f"forgotten {broker.LOCK_KEPT_S / 60:.0f} minutes after the locks ended",
    f"Bound: {broker.POP_IN_FLIGHT_MAX:,} messages in hand",
    f"{broker.PRODUCERS_MAX:,} producer names in",
    f"wrote nothing for {seconds(broker.PRODUCER_IDLE_S)} make room",
    f"keeps the names for {broker.PRODUCER_KEPT_S // DAY_S} days",
    f"Bound: {mib(broker.REPEATED_BYTES_PER_S_TOPIC_MAX)}/s for a topic's repeats,"
    f" {broker.REPEATED_BYTES_PER_S_MAX // foundation.MIB} for those of all topics",
    f"Bound: {broker.QUEUES_MAX:,} queues of all topics",
    f"a producer group has at most {broker.PRODUCER_GROUP_CHARACTERS_MAX} characters",
    f"there are {broker.CONSUMER_OFFSETS_MAX:,} offsets",
    f"{broker.DESCRIPTORS_RESERVED} descriptors are kept for the log",
    f"Bound: {broker.SQL_STEPS_MAX:,} steps a pull",
    f"Bound: {foundation.SUBSCRIPTION_CHARACTERS_MAX:,} characters",
    f"Bound: {broker.QUERY_CANDIDATES_MAX:,} messages, and"
    f" {mib(broker.QUERY_CANDIDATES_BYTES_MAX)}",
    f"{foundation.KEYS_PER_MESSAGE_MAX} keys for each of {_SHARED_KEYS:,} messages, or 1 for each"
    f" of {broker.KEYS_PER_BATCH_MAX // (1 + broker.KEYS_PER_MESSAGE_WEIGHT):,}",
    f"Bound: {mib(foundation.CLIENT_BODY_BYTES_MAX)},"
    f" {kib(foundation.CLIENT_LOOSE_BODY_BYTES_MAX)} in the loose dialect; two entries",
    f"copies of {mib(broker.PULL_JOINED_BYTES_MAX)} at most",
    f"answers in slices of {foundation.LOOP_SLICE_S * 1000:.0f} ms",
    f"notices are gathered over {broker.NOTIFY_GATHER_S * 1000:.0f} ms",
    f"A stop waits {seconds(broker.STOP_SAVE_S)} for its snapshot",
    f"{broker.PROGRESS_QUEUES_MAX:,} queues or producers in one answer",
    f"{mib(broker.POP_GATHERED_BYTES_MAX)} of acks in a request,"
    f" {broker.POP_CHANGES_PER_ENTRY_MAX} changes in an entry",
    f"errors quote {foundation.NAME_SHOWN_CHARACTERS_MAX} characters of a text, an answer's remark"
    f" has {foundation.REMARK_CHARACTERS_MAX:,}, a value in the log"
    f" {foundation.LOG_TEXT_CHARACTERS_MAX:,}",
    f"at most {foundation.HEADER_LISTS_MAX:,} lists",
    f"{kib(foundation.REGISTRATION_LOOSE_BODY_BYTES_MAX)} of a registration;"
    f" {broker.MESSAGES_PER_BATCH_MAX:,} messages, read {broker.BATCH_STEP} at a time;"
    f" {broker.QUEUES_PER_TOPIC_MAX:,} runs",
    f"{namesrv.TOPICS_PER_GROUP_MAX:,} topics of a broker group, {namesrv.TOPICS_MAX:,} of all"
    f" broker groups that prove nothing, {mib(namesrv.REGISTRATION_BYTES_MAX)} inflated",
    f"{kib(namesrv.TOPIC_TEXT_BYTES_MAX)} of a topic; topics are read",
    f"moved as a whole; {namesrv.DEPARTURES_LOGGED_MAX} lines of the log",
    f"Bound: {foundation.ROUTE_QUEUES_MAX:,} queues of a topic, {foundation.ROUTE_GROUPS_MAX:,}"
    f" broker groups, {foundation.ROUTE_MEMBERS_MAX} members each",
    f"a consumer group has at most {client.CONSUMERS_PER_GROUP_MAX:,} consumers",
    f"{mib(client.POP_HAND_BYTES_MAX)} in handlers' hands or from one poll,"
    f" {mib(client.POP_READY_BYTES_MAX)} of records ahead",
    f"a message's {mib(foundation.MESSAGE_BODY_BYTES_MAX)}; zlib only",
    f"no name server knows, {seconds(client.LARGE_FETCH_S)}, however many",
    f"waits for {WORDS[client.LARGE_GROUPS_WAITED_MAX]} such broker groups separately",
    f"Bound: {1 / client.EMPTY_PULL_PAUSE_S:.0f} a second for each queue",
    f"a journal has at most {kib(namesrv.KV_JOURNAL_BYTES_MIN)} or the table's length",
    f"for one kind and host {foundation.LOG_LINES_AT_ONCE} lines at once, then one in"
    f" {seconds(1 / foundation.LOG_LINES_PER_S)}; for all hosts five times as many",
)
assert foundation.LOG_LINES_OF_ALL == 5 * foundation.LOG_LINES_AT_ONCE
METRICS = (
    f"`metricsPromExporterPort` | `{metrics.PORT}`",
    f"{metrics.PORT} is RocketMQ's port",
    f"no more than {WORDS[int(metrics.PAGE_COST_FACTOR)]} of the process's time",
    f"There are {metrics.CONNECTIONS_MAX} connections at most, a request has"
    f" {kib(metrics.REQUEST_BYTES_MAX)} and {seconds(metrics.REQUEST_S)}",
    f"a page of {metrics.HISTORY_ROWS_AT_ONCE} rows at a time",
    f"At most {metrics.NAMES_SHOWN_MAX:,} topics and {metrics.NAMES_SHOWN_MAX:,} groups have"
    " series of their own",
    f"above {seconds(foundation.LOOP_STALL_S)}",
    f"has taken no messages for {seconds(broker.ASKS_AGAIN_S)}",
    f"{metrics.NAMES_ASKED_MAX} topics and groups together",
    f"{metrics.DETAILS_QUEUES_MAX:,} pairs of a queue and a consumer group",
)
assert metrics.HISTORY_STEP_S * metrics.HISTORY_ROWS_MAX == 3600, "an hour, as the page has it"
PERFORMANCE = (
    f"Batches hold up to {mib(client.BATCH_BYTES_MAX)}",
    f"each segment of {mib(foundation.SEGMENT_BYTES)}",
)
CLAIMS = {
    "explanation/guarantees.md": GUARANTEES,
    "explanation/dledger.md": LOG,
    "explanation/performance.md": PERFORMANCE,
    "explanation/security.md": SECURITY,
    "how-to/bulk.md": BULK,
    "how-to/consuming.md": CONSUMING,
    "how-to/exactly-once.md": EXACTLY_ONCE,
    "reference/broker.md": BROKER,
    "reference/metrics.md": METRICS,
}


@pytest.mark.parametrize("page", CLAIMS)
def test_figures_of_a_page_follow_the_code(page: str) -> None:
    """A bound that is changed changes the phrase, which the page then lacks."""
    text = " ".join((DOCS / page).read_text().split())

    assert [phrase for phrase in CLAIMS[page] if phrase not in text] == []


def test_the_readme_has_figures_of_the_page_about_performance() -> None:
    """The README's figures are on the page about performance; both are written from one result."""
    readme = (DOCS.parent / "README.md").read_text()
    told = (DOCS / "explanation" / "performance.md").read_text()
    rows = re.findall(r"^\| .*(?:messages/s|, ms) \|(.*)\|$", readme, re.MULTILINE)
    figures = [cell.strip(" *") for row in rows for cell in row.split("|")]

    assert len(rows) >= 7
    assert [
        each for each in figures if each != "-" and f" {each} |" not in told.replace("*", "")
    ] == []
