"""Bounds of every table of the replicated state, and of every container of a leader."""

from __future__ import annotations

import re
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from weakref import WeakKeyDictionary

import msgspec
import pytest
from replicas import Group

from dledger.limits import (
    ACL_NAME_BYTES_MAX,
    ACL_SOURCES_MAX,
    PASSWORD_BYTES_MAX,
    RATE_PER_S_MAX,
    STATE_BYTES_MAX,
    USER_NAME_BYTES_MAX,
)
from dledger.remoting.bodies import (
    LockBatchBody,
    SubscriptionGroupConfig,
    TopicConfig,
    encode_body,
)
from dledger.remoting.codes import RequestCode as Code
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.numbers import INT32_MIN, INT64_MAX
from dledger.slices import drained
from dledger.trust.policies import Entry
from dledger.trust.rights import Action
from dledger.trust.users import User
from mqbroker import limits
from mqbroker.flow import limits as flow
from mqbroker.state.aside import AsideBook
from mqbroker.state.attributes import GROUP_ATTRIBUTES, TOPIC_ATTRIBUTES
from mqbroker.state.groups.subscriptions import Beginning
from mqbroker.state.saved.snapshot import State, encode_state, read_snapshot
from mqbroker.state.topics import Birth
from mqbroker.tables import TABLES
from mqbroker.testing.pictured import saved_state_of
from mqbroker.testing.requests import topic_request

ROOT = Path(__file__).parents[2]
NAME, CLIENT = "n" * 127, "c" * limits.CLIENT_ID_BYTES_MAX
LARGE = INT64_MAX // 2


def attributes(known: Mapping[str, object]) -> dict[str, str]:
    """Attributes with their longest values."""
    return {name: str(RATE_PER_S_MAX) for name in known}


def largest() -> State:
    """A state with one row of each table, as large as it may be."""
    aside = AsideBook()
    aside.add(LARGE, "x")
    topic = TopicConfig(NAME, 1024, 1024, 7, INT32_MIN, attributes=attributes(TOPIC_ATTRIBUTES))
    readers = SubscriptionGroupConfig(NAME, attributes=attributes(GROUP_ATTRIBUTES))
    bits = b"\xff" * (limits.POP_SPAN_MESSAGES_MAX // 8)
    attempt = "a" * limits.POP_ATTEMPT_BYTES_MAX
    instances = ["\U0001f600" * limits.PRODUCER_INSTANCE_CHARACTERS_MAX]
    streams = [(15, LARGE, LARGE, LARGE)] * limits.STREAMS_PER_PRODUCER_MAX
    key = b"k" * limits.DEDUP_KEY_BYTES_MAX
    copies = {key: (LARGE, LARGE)}
    networks = tuple(["ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"] * ACL_SOURCES_MAX)
    named = "Cluster:" + "n" * ACL_NAME_BYTES_MAX
    entry = Entry("Default", named, tuple(Action), networks, "Allow")
    return State(
        topics=[topic],
        births={NAME: [Birth(1023, LARGE, LARGE, LARGE)]},
        queues={NAME: (LARGE, {1023: LARGE})},
        begins={NAME: {1023: LARGE}},
        groups=[readers],
        begun={NAME: Beginning(LARGE, LARGE)},
        offsets=[(NAME, NAME, 1023, LARGE)],
        locks=[(NAME, NAME, 1023, CLIENT, LARGE)],
        lock_tokens=[LARGE],
        # A row for the queue, and one for what was handed out.
        popped=[(NAME, NAME, 1023, LARGE, LARGE, [(LARGE, bits, LARGE, LARGE, LARGE, attempt)])],
        modes=[(NAME, NAME, "PULL", INT32_MIN)],
        timers=b"t" * 16,
        timer_owners=([], b"1234"),
        halves=b"t" * 16,
        half_owners=([[NAME, NAME]], b"1234"),
        delays={63: LARGE},
        producers=[(NAME, instances * limits.INSTANCES_PER_NAME_KEPT, LARGE, LARGE, streams)],
        producer_owners={NAME: "u" * USER_NAME_BYTES_MAX},
        decided=[(NAME, LARGE, LARGE, LARGE)],
        dedup=[msgspec.msgpack.encode((copies, copies))],
        settings={"registerBrokerHeartbeatMillis": "1" * 20},
        # A row for the user, and one for what it may do.
        users=[User(NAME, b"w" * (PASSWORD_BYTES_MAX + 16), entries=(entry,))],
        aside=(1, [], [LARGE]),
    )


def test_a_field_of_the_snapshot_has_a_bound() -> None:
    """A new field of the snapshot must be a bounded table here, or a single number."""
    single = {
        field.name
        for field in msgspec.structs.fields(State)
        if field.type is int or field.name in ("topics_version", "groups_version", "keys")
    }
    assert set(TABLES) | single == {field.name for field in msgspec.structs.fields(State)}
    assert not set(TABLES) & single


@pytest.mark.parametrize("field", TABLES)
def test_a_row_is_no_larger_than_is_said(field: str) -> None:
    """A row with the longest names and largest numbers is no larger than its bound."""
    table, rows = TABLES[field], 2 if field in ("popped", "users") else 1
    empty = len(msgspec.msgpack.encode(getattr(State(), field)))
    size = len(msgspec.msgpack.encode(getattr(largest(), field))) - empty
    assert 0 < size <= rows * table.row_bytes_max + 4


def test_the_largest_state_can_be_given_to_another_replica() -> None:
    """A state with all tables full of the largest rows can be sent to another replica."""
    assert sum(table.bytes_max for table in TABLES.values()) <= STATE_BYTES_MAX


def test_the_docs_show_every_table() -> None:
    """The docs have each table's rows, bytes, owner and end."""
    text = (ROOT / "docs" / "reference" / "broker.md").read_text()
    shown = {
        cells[0].strip("` "): [cell.strip() for cell in cells[1:]]
        for line in text.splitlines()
        if len(cells := line.strip("|").split("|")) == 5
    }
    for field, table in TABLES.items():
        wanted = [f"{table.rows_max:,}", f"{table.row_bytes_max:,}", table.owner, table.freed_by]
        assert shown.get(field) == wanted, f"| `{field}` | {' | '.join(wanted)} |"


def test_a_state_is_encoded_field_by_field_as_in_one_piece() -> None:
    """A state encoded by fields is the same as in one piece, for older and newer versions."""
    for state in (largest(), State()):
        fields = {name: getattr(state, name) for name in State.__struct_fields__}
        assert b"".join(encode_state(fields)) == msgspec.msgpack.encode(state)


async def test_a_picture_does_not_change_while_it_waits_to_be_written(found: Group) -> None:
    """A picture stays as it was while a thread encodes it and entries of all kinds are applied."""
    await found.begin()
    stranger = found.connect()
    key: dict[str, ExtValue] = {"consumerGroup": "G", "topic": "Orders", "queueId": 0}

    async def change(number: int) -> None:
        commit = Command(Code.UPDATE_CONSUMER_OFFSET, key | {"commitOffset": number})
        queues = [MessageQueue("Orders", "broker-a", number)]
        lock = encode_body(LockBatchBody("G", f"c{number}", queues))
        naming = {"producerName": f"n{number % 2}", "instance": f"i{number}"}
        await found.begin()
        for request in (
            commit,
            Command(Code.LOCK_BATCH_MQ, {}, lock),
            Command(Code.REGISTER_PRODUCER, naming),
            topic_request("Grows", 4 + number),
        ):
            await stranger.do(request)

    for number in range(2):
        await change(number)
        picture = drained(found.machine.begin_snapshot())
        expected = msgspec.msgpack.encode(saved_state_of(found.machine))
        await change(number + 2)
        await stranger.ask(Command(Code.DELETE_TOPIC_IN_BROKER, {"topic": "Grows"}))
        assert msgspec.msgpack.encode(saved_state_of(found.machine)) != expected
        picture.write()
        found.machine.saved(picture)
        payload = read_snapshot(found.machine._snapshot_path)
        assert payload == expected
    found.agree()


# -- what a leader keeps beside the state ---------------------------------------------------------

#: Bounds of each container: names of limits, or of things of which it holds one each.
LEADERS = {
    "Flow": {"_groups": "FLOW_GATES_MAX", "_topics": "FLOW_GATES_MAX"},
    "InFlight": {"_flights": "the log's appends under way"},
    "Unheard": dict.fromkeys(("_copies", "_left", "_answered"), "UNHEARD_COPIES_MAX"),
    "Waiting": {"_sends": "SENDS_TOGETHER_MAX"},
    "Assignments": {"_withdrawn": "QUEUES_MAX", "_next": "QUEUES_MAX"},
    "Definitions": {
        "_made": "connections",
        "_groups_coming": "GROUPS_MAX",
        "_topics_coming": "TOPICS_MAX",
        "_beginning": "GROUPS_MAX",
        "_topics_going": "TOPICS_MAX",
    },
    "Locking": {"_asked": "connections", "_coming": "connections"},
    "OffsetCommits": {
        "_gathered": "COMMITS_PER_ENTRY_MAX",
        "_on_its_way": "COMMITS_PER_ENTRY_MAX",
        "_waiting": "COMMITS_PER_ENTRY_MAX",
        "_on_its_way_waiting": "COMMITS_PER_ENTRY_MAX",
        "_moving": "the log's appends under way",
    },
    "Role": {"addresses": "members"},
    "Transactions": dict.fromkeys(("_asked_ms", "_unheard", "_ending"), "TRANSACTIONS_MAX"),
    "Deliveries": {"_leaving": "the log's appends under way"},
    "Budget": {"_free_ms": "TOPICS_MAX"},
    "Announcements": {
        "_changes": "ANNOUNCE_S",
        "unconfirmed": "TOPICS_MAX",
        "_known": "name servers",
        "_news": "NEWS_TOPICS_MAX",
        "_said_wiped": "name servers",
    },
    "Counter": {"_samples": "RATE_WINDOWS_S"},
    "Rates": {"_pull_offsets": "PULL_OFFSETS_MAX"},
    "Statistics": dict.fromkeys(("_rows", "_rings", "_free"), "STATISTICS_ROWS_MAX"),
    "_Ring": {"_taken_s": "RATE_WINDOWS_S"},
    "Dispatcher": {"_open": "codes", "table": "codes"},
    "ClientHandler": {"_changed": "GROUPS_PER_CLIENT_MAX", "_connections": "connections"},
    "Earlier": {"_left": "LEFT_BEHIND_PER_CONNECTION_MAX", "_pulling": "PULLING_GROUPS_MAX"},
    "Membership": {
        "_left": "GROUPS_LEFT_MAX",
        "_refused_clients": "GROUPS_KEPT_OUT_MAX",
        **dict.fromkeys(
            ("_connections", "_consumers", "_groups", "_last_seen_s", "_producers"),
            "GROUPS_PER_CLIENT_MAX",
        ),
    },
    "Traffic": {
        **dict.fromkeys(
            ("arrived", "given_up", "rolled_back", "commits", "ahead"), "STATISTICS_ROWS_MAX"
        ),
        "finished": "codes",
    },
    "Latencies": dict.fromkeys(("_new", "_sorted"), "codes"),
    "Makings": {"rows": "codes"},
    "Following": {"_samples": "FOLLOWING_SAMPLES_MAX"},
    "Readers": {"_resets": "RESETS_PENDING_MAX", "_last": "READERS_MAX"},
    "HeldPops": dict.fromkeys(
        ("_of_queue", "_due", "_groups", "_held", "_of_connection"), "POPS_HELD_MAX"
    ),
    "Pops": dict.fromkeys(("_coming", "_ahead"), "the log's appends under way"),
    "_Gathered": dict.fromkeys(("acks", "changes", "waiting"), "POP_GATHERED_BYTES_MAX"),
    "Popping": {
        **dict.fromkeys(("_turns_s", "_left"), "POPS_HELD_MAX"),
        "_going_on": "requests that are charged for",
    },
    "HeldPulls": {
        **dict.fromkeys(("_due", "_held", "_of_connection"), "PULLS_HELD_MAX"),
        "_taking": "TAKERS_HELD_MAX",
    },
    "Replies": {"_kinds": "REFUSAL_KINDS_MAX"},
    "OnceHandler": {"_made": "connections"},
    "OnceAppender": {"_registering": "the log's appends under way"},
    "AssignmentHandler": {"_routes": "ROUTES_KEPT_MAX"},
}
OTHERS = {
    *("codes", "connections", "members", "name servers"),
    "the log's appends under way",
    "requests that are charged for",
}
HOLDS = (dict, set, list, deque, bytearray, array, WeakKeyDictionary)


def containers(found: Group) -> Iterator[tuple[str, str]]:
    """(class, attribute) of each container that the objects of a broker hold, from it on."""
    seen, todo = set[int](), list[object]([found.broker, *found.broker.handler.table.values()])
    while todo:
        each = todo.pop()
        is_ours = type(each).__module__.startswith("mqbroker.")
        if id(each) in seen or not (
            is_ours or isinstance(each, tuple) or hasattr(each, "__self__")
        ):
            continue
        seen.add(id(each))
        todo += each if isinstance(each, tuple) else [getattr(each, "__self__", None)]
        for name in names_of(each) if is_ours else ():
            value = getattr(each, name, None)
            if not isinstance(value, HOLDS):
                todo.append(value)
                continue
            if not type(each).__module__.startswith(("mqbroker.state", "mqbroker.config")):
                yield type(each).__name__, name
            if not isinstance(value, bytearray | array):
                todo += [*value][:20]
                todo += [*value.values()][:20] if isinstance(value, dict) else []


def names_of(each: object) -> set[str]:
    """The attributes of an object, whether it has slots or not."""
    slots = {
        name
        for kind in type(each).__mro__
        for name in (getattr(kind, "__slots__", ()) or ())
        if not isinstance(getattr(kind, "__slots__", ()), str)
    }
    return slots | set(getattr(each, "__dict__", ()))


async def test_each_container_of_a_leader_has_a_bound(
    found: Group,
) -> None:
    """A new container of a leader must be listed here with its bound."""
    await found.begin()
    unlisted = {
        f"{owner}.{name}" for owner, name in containers(found) if name not in LEADERS.get(owner, {})
    }
    assert not unlisted


def test_what_bounds_a_container_is_a_limit() -> None:
    """A bound of a container is a name in a broker's `limits.py`, or held by another bound."""
    for bound in {bound for listed in LEADERS.values() for bound in listed.values()}:
        assert bound in OTHERS or hasattr(limits, bound) or hasattr(flow, bound), bound
        assert bound in OTHERS or re.fullmatch("[A-Z_]+", bound)
