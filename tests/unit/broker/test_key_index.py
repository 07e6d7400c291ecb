"""The key index: messages are found by their keys, in files that a crash leaves at any length."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.errors import StorageError
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command, ExtValue
from dledger.remoting.message import host_bytes, properties_encode
from dledger.remoting.record import encode_record, walk
from mqbroker.state.derived.consume_queue import remove_paths
from mqbroker.state.derived.indexing import index_records
from mqbroker.state.derived.key_index import KeyIndex
from mqbroker.state.derived.keys import Key, encode_keys, hashes_of, key_hashes, key_units
from mqbroker.testing import served
from mqbroker.testing.requests import ask, make_topic, produce_request, records, send_request

PER_FILE = 64


def filled(directory: Path, keys: list[str], *, seal: bool = True) -> KeyIndex:
    """An index whose message number n is at position n * 100."""
    index = KeyIndex(directory, PER_FILE)
    for number, key in enumerate(keys):
        index.append([Key(b"T", key.encode(), number * 100)])
        if number % 37 == 0:
            index.flush()
            if seal:
                index.seal(index.end)
    return index


@pytest.mark.parametrize("seed", range(5))
def test_every_message_is_found_by_its_key_the_newest_first(seed: int, tmp_path: Path) -> None:
    """Messages are found in memory, in the growing file and in sorted files, newest first."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    keys = [f"k{rng.randrange(40)}" for _ in range(rng.randrange(1, 500))]
    index = filled(tmp_path, keys)
    for key in {*keys, "none"}:
        expected = [number * 100 for number, each in enumerate(keys) if each == key]
        assert list(index.find("T", key)) == expected[::-1]
    assert list(index.find("U", keys[0])) == []


def test_full_files_are_sorted_and_their_first_form_removed(tmp_path: Path) -> None:
    """Each is as large as before; the last one stays as it comes in."""
    index = filled(tmp_path, [f"k{number}" for number in range(PER_FILE * 2 + 5)])
    index.flush()
    index.seal(index.end)
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {
        f"{0:020}.sorted": PER_FILE * 16,
        f"{PER_FILE:020}.sorted": PER_FILE * 16,
        f"{PER_FILE * 2:020}": 5 * 16,
    }


@pytest.mark.parametrize("claimed", [0, 1, PER_FILE - 1, PER_FILE, PER_FILE + 1, PER_FILE * 3])
def test_after_a_crash_the_index_is_cut_back_to_what_a_snapshot_claims(
    claimed: int, tmp_path: Path
) -> None:
    """Entries after the snapshot's claim are applied again, and found once."""
    keys = [f"k{number % 9}" for number in range(PER_FILE * 3 + 10)]
    before = filled(tmp_path, keys, seal=False)
    before.flush()
    before.seal(claimed)
    index = KeyIndex(tmp_path, PER_FILE)
    index.restore(0, claimed)
    index.trim()
    assert index.end == claimed
    for number in range(claimed, len(keys)):
        index.append([Key(b"T", keys[number].encode(), number * 100)])
    expected = [number * 100 for number, each in enumerate(keys) if each == "k3"]
    assert list(index.find("T", "k3")) == expected[::-1]


def test_an_index_that_lost_a_file_is_not_used(tmp_path: Path) -> None:
    """An index that lacks a file is an error: the log is replayed without the snapshot."""
    index = filled(tmp_path, ["k"] * (PER_FILE + 3))
    index.flush()
    (tmp_path / f"{0:020}").unlink()
    with pytest.raises(StorageError, match="synced once"):
        KeyIndex(tmp_path, PER_FILE).restore(0, index.end)


def test_files_of_a_log_that_begins_later_are_forgotten(tmp_path: Path) -> None:
    """Only whole files are forgotten, and look-ups go on with the rest."""
    index = filled(tmp_path, ["k"] * (PER_FILE * 3))
    index.flush()
    gone = index.forget_files(index.files_before((PER_FILE + 1) * 100))
    assert {path.name[:20] for path in gone} == {f"{0:020}"}
    assert index.first == PER_FILE
    assert len(list(index.find("T", "k"))) == PER_FILE * 2


def test_who_still_saves_an_index_of_before_does_no_harm_to_the_new_one(tmp_path: Path) -> None:
    """A thread that saves an older index harms no newer one, which a taken state has begun."""
    index = filled(tmp_path, [f"k{number}" for number in range(PER_FILE * 3 + 5)], seal=False)
    index.flush()
    outdated, end = index.forget_files(index.files_before(PER_FILE * 100)), index.end
    index.forget()
    index.trim()
    keys = [f"new{number}" for number in range(PER_FILE + 5)]
    index.append([Key(b"T", key.encode(), number * 100) for number, key in enumerate(keys)])
    index.flush()
    remove_paths(outdated)
    index.seal(end)
    index.append([Key(b"T", b"last", 1)])
    index.flush()
    assert list(index.find("T", "last")) == [1]
    assert [list(index.find("T", key)) for key in keys] == [
        [number * 100] for number in range(len(keys))
    ]


def test_one_key_and_many_have_the_same_units() -> None:
    """Keys have the same units alone and in a batch, of any length and mixed."""
    single: list[Key | bytes] = []
    mixed: list[Key | bytes] = []
    for length in (1, 7, 8, 9, 32, 33):
        rows = np.arange(3 * length, dtype=np.uint8).reshape(3, length)
        keys = [Key(b"Topic", row.tobytes(), length) for row in rows]
        single += keys
        hashes = key_hashes(b"Topic", rows)
        assert len(set(hashes.tolist())) == 3
        mixed += [keys[0], key_units(hashes[1:], np.full(2, length))]
    assert encode_keys(single) == encode_keys(mixed)
    assert encode_keys([]) == b""


@given(st.lists(st.binary(max_size=40) | st.binary(min_size=120, max_size=140), max_size=12))
def test_keys_of_any_lengths_are_hashed_together_as_alone(keys: list[bytes]) -> None:
    """Keys have the same hashes together as alone, also with the same first or last bytes."""
    keys += [key + key[-1:] for key in keys]
    alone = [key_hashes(b"T", np.frombuffer(key, np.uint8).reshape(1, len(key))) for key in keys]
    assert hashes_of(b"T", keys).tolist() == [int(each[0]) for each in alone]


@pytest.mark.parametrize(
    "kinds",
    [
        [{"UNIQ_KEY": "{n:032}"}],
        [{"UNIQ_KEY": "{n}x"}, {"UNIQ_KEY": "{n:032}"}],
        [{"UNIQ_KEY": "{n:032}", "KEYS": "a b{n} a"}, {"TAGS": "t", "KEYS": "c"}, {}],
        [{"xUNIQ_KEY": "{n:031}"}],
        [{"KEYS": "a", "UNIQ_KEY": "{n:032}"}],
    ],
)
def test_a_batch_is_indexed_like_its_messages_one_by_one(kinds: list[dict[str, str]]) -> None:
    """The way that takes all records at once gives what the slow way gives."""
    body, position = bytearray(), 4800
    for number in range(20):
        kind = kinds[number % len(kinds)]
        properties = {name: value.format(n=number) for name, value in kind.items()}
        body += encode_record(
            topic=b"Orders",
            queue_id=0,
            body=b"UNIQ_KEY\x01body\x02" * 3,
            properties=properties_encode(properties),
            born_timestamp_ms=1,
            born_host=host_bytes("127.0.0.1", 1),
            queue_offset=number,
            physical_offset=position + len(body),
            store_timestamp_ms=2,
        )
    view = memoryview(bytes(body))
    starts = [*walk(view), len(view)]
    alone = [
        index_records(view[start:end], position + start)
        for start, end in itertools.pairwise(starts)
    ]
    together = index_records(view, position)
    assert encode_keys(together.keys) == b"".join(encode_keys(each.keys) for each in alone)
    assert together.runs[0].units == b"".join(each.runs[0].units for each in alone)


async def query(peer: Peer, key: str, **changed: ExtValue) -> Command:
    """QUERY_MESSAGE as stock tools send it."""
    fields: dict[str, ExtValue] = {
        "topic": "Orders",
        "key": key,
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str((1 << 63) - 1),
        "_UNIQUE_KEY_QUERY": "false",
    }
    return await ask(peer, RequestCode.QUERY_MESSAGE, **fields | changed)


async def test_messages_are_queried_by_key_and_by_unique_key(tmp_path: Path) -> None:
    """A query finds the newest messages of a time window, in the order of the log."""
    now_ms = 1000
    async with served(tmp_path, clock_ms=lambda: now_ms) as (_, peer):
        for number in range(5):
            now_ms = 1000 + number
            await peer.request(send_request(b"%d" % number, i=f"KEYS\x01k{number} all\x02"), 5)
        await peer.request(produce_request("u"), 5)

        async def bodies(key: str, **changed: ExtValue) -> list[bytes]:
            return [bytes(each.body) for each in records(await query(peer, key, **changed))]

        assert await bodies("k3") == [b"3"]
        assert await bodies("all") == [b"0", b"1", b"2", b"3", b"4"]
        assert await bodies("all", maxNum="2") == [b"3", b"4"]
        assert await bodies("all", beginTimestamp="1001", endTimestamp="1002") == [b"1", b"2"]
        assert await bodies("u-3-0") == [b"u 3 0"]
        for key, topic in (("k", "Orders"), ("all", "TBW102")):
            nothing = await query(peer, key, topic=topic)
            assert nothing.code == ResponseCode.QUERY_NOT_FOUND
        assert (await query(peer, "all", topic="None")).code == ResponseCode.TOPIC_NOT_EXIST
        found = await query(peer, "k3")
        assert found.ext["indexLastUpdateTimestamp"] == 1004


async def test_a_topic_made_again_does_not_show_the_old_ones_messages(peer: Peer) -> None:
    """A query does not find messages of a deleted topic, though they are still in the log."""
    await peer.request(send_request(b"old", i="KEYS\x01k\x02"), 5)
    await ask(peer, RequestCode.DELETE_TOPIC_IN_BROKER, topic="Orders")
    await make_topic(peer, "Orders")
    assert (await query(peer, "k")).code == ResponseCode.QUERY_NOT_FOUND
    await peer.request(send_request(b"new", i="KEYS\x01k\x02"), 5)
    assert [bytes(each.body) for each in records(await query(peer, "k"))] == [b"new"]
