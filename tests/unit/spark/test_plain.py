"""Records that are read many at a time equal those read one by one; odd ones are left to that."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from dledger.remoting.message import host_bytes
from dledger.remoting.names import OP_TOPIC
from dledger.remoting.record import (
    BORN_HOST_IPV6,
    COMPRESSED,
    STORE_HOST_IPV6,
    encode_record,
)
from mqspark.limits import ALIKE_GROUPS_MAX
from mqspark.source.plain import PlainWalk
from mqspark.source.records import Place, RecordColumns, RecordWalk

IPV4, IPV6 = host_bytes("127.0.0.1", 1), host_bytes("::1", 2)
BASE = 4096
PROPERTIES = (
    "",
    "UNIQ_KEY\x01{}",
    "KEYS\x01a{}\x02UNIQ_KEY\x01{:08}\x02",
    "KEYS\x01Q_{}\x02UNIQ_KEY\x01{:08}\x02",
    "NO_UNIQ_KEY\x01{}\x02UNIQ_KEY\x01{:08}",
    "UNIQ_KEY\x01\x02UNIQ_KEY\x01{}",
    "UNIQ_KEY\x01schön{}\x02TAGS\x01x",
    "TAGS\x01UNIQ_KEY\x02UNIQ_KEY\x01{:08}\x02UNIQ_KEY\x01second",
    "LARGE_BODY\x01a 12 89abcdef 3\x02UNIQ_KEY\x01{}",
)
Log = tuple[bytearray, list[tuple[Place, int, int]]]


def some_log(choose: random.Random, topics: list[str]) -> Log:
    """Entries with a few records each, of many kinds."""
    raw, entries = bytearray(choose.randbytes(16)), []
    for number in range(choose.randint(1, 30)):
        start = len(raw)
        for _ in range(choose.randint(0, 6)):
            flags = choose.choice([0, 0, 0, BORN_HOST_IPV6, STORE_HOST_IPV6, COMPRESSED])
            body = choose.randbytes(choose.choice([0, 1, 40, 40]))
            record = encode_record(
                topic=choose.choice(topics).encode(),
                queue_id=0,
                body=zlib.compress(body) if flags & COMPRESSED and choose.random() < 0.8 else body,
                properties=choose.choice(PROPERTIES).format(number, number).encode(),
                sys_flag=flags,
                physical_offset=BASE + len(raw),
                born_timestamp_ms=1,
                born_host=IPV6 if flags & BORN_HOST_IPV6 else IPV4,
                store_timestamp_ms=1,
                store_host=IPV6 if flags & STORE_HOST_IPV6 else IPV4,
            )
            raw += record
        entries.append((Place(number, 1, 7), start, len(raw)))
        raw += bytes(choose.randint(0, 60))
    return raw, entries


def one_by_one(log: Log, *, verify: bool) -> RecordColumns:
    rows = RecordColumns()
    walk = RecordWalk(memoryview(bytes(log[0])), BASE, verify=verify)
    for place, start, end in log[1]:
        walk.walk(rows, place, start, end)
    return rows


def at_once(log: Log, *, verify: bool) -> RecordColumns | None:
    walk = PlainWalk(memoryview(bytes(log[0])), BASE, verify=verify)
    chains = [walk.starts(start, end) for _, start, end in log[1]]
    if None in chains:
        return None
    return walk.rows([place for place, *_ in log[1]], [chain or [] for chain in chains])


@pytest.mark.parametrize("verify", [True, False])
def test_sound_records_read_at_once_are_what_they_are_one_by_one(verify: bool) -> None:
    """Sound records of every kind are the same read at once and one by one."""
    for seed in range(60):
        print(f"seed {seed}")
        choose = random.Random(seed)
        many = [f"topic-{number}" for number in range(2 * ALIKE_GROUPS_MAX)]
        log = some_log(choose, choose.choice([["T"], ["T", "Ü", OP_TOPIC], many]))
        expected = one_by_one(log, verify=verify)
        assert expected.errors == {}
        assert at_once(log, verify=verify) == expected


@pytest.mark.parametrize("verify", [True, False])
def test_damage_is_left_to_those_who_look_at_records_one_by_one(verify: bool) -> None:
    """A changed byte gives the same records, or leaves all to reading one by one."""
    refused = 0
    for seed in range(400):
        print(f"seed {seed}")
        choose = random.Random(seed)
        log = some_log(choose, ["T", OP_TOPIC])
        log[0][choose.randrange(len(log[0]))] = choose.randrange(256)
        expected, found = one_by_one(log, verify=verify), at_once(log, verify=verify)
        refused += found is None
        if found is not None:
            assert found == expected
            assert not found.errors
            assert np.all(found.whole)
    assert refused > (100 if verify else 20)
