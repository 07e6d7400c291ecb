"""`verifyLog` names each damage of a replica's folder, and changes no byte of it."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dledger.errors import ConfigError, CorruptLog
from dledger.log.disk import Disk
from dledger.log.entry import Kind
from dledger.log.hard_state import HardState, HardStateFile
from dledger.log.recovery.startup import open_log
from dledger.log.recovery.verify import verify_replica
from dledger.log.replica import hold_replica
from dledger.log.scanning.scan import Found
from dledger.log.segments.segment import segment_path
from mqclient.commands.mqadmin import main

SEGMENT_BYTES = 4096
ENTRIES = 60
DURABLE = 50


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """A stopped node's folder: 60 entries in several segments, surely durable up to 50."""
    folder = tmp_path / "n1"
    with hold_replica(folder, "g", "n1", SEGMENT_BYTES):
        log, _ = open_log(folder / "log", SEGMENT_BYTES)
        with closing(HardStateFile(folder / "log" / "term", Disk())) as hard_state:
            hard_state.save(HardState(2, None))
            hard_state.save(HardState(3, "n2"))
        for index in range(1, ENTRIES + 1):
            log.append(index, 1 + index // 25, Kind.MESSAGES, b"%d " % index * 50)
            if index == DURABLE:
                log.sync()
        log.close()
    return folder


def log_files(folder: Path) -> list[Path]:
    return sorted((folder / "log").glob("*.seg"))


def fingerprint(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def damage(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def place_of(folder: Path, index: int) -> tuple[Path, int]:
    """The file of an entry, and where it starts there."""
    places: dict[int, int] = {}

    def note(base: int, found: Found) -> None:
        if found.header is not None:
            places[found.header.index] = base + found.offset

    verify_replica(folder, note)
    base, offset = divmod(places[index], SEGMENT_BYTES)
    return segment_path(folder / "log", base * SEGMENT_BYTES), offset


def test_a_good_replica_checks_and_nothing_of_it_changes(replica: Path) -> None:
    """Every entry is read; files, their times and the folder are as before."""
    before = fingerprint(replica)
    seen: list[Found] = []
    found = verify_replica(replica, lambda _, entry: seen.append(entry))
    assert fingerprint(replica) == before
    assert (found.group, found.node_id, found.in_use) == ("g", "n1", False)
    assert (found.first_index, found.last_index, found.last_term) == (1, ENTRIES, 3)
    assert (found.term, found.vote, found.durable_index) == (3, "n2", DURABLE)
    assert (found.segments, found.entries, len(seen)) == (len(log_files(replica)), 60, 60)
    assert (found.damaged, found.torn, found.stale) == (0, 0, 0)


def test_a_folder_in_use_is_read_and_said_to_be(replica: Path) -> None:
    """A node may run meanwhile, and is not kept from anything."""
    with hold_replica(replica, "g", "n1", SEGMENT_BYTES):
        assert verify_replica(replica).in_use
    assert not verify_replica(replica).in_use


@pytest.mark.parametrize("seed", range(8))
def test_every_bit_that_flips_in_a_durable_entry_is_found_where_it_is(
    replica: Path, seed: int
) -> None:
    """The fault names the file and the entry, and a start refuses that folder too."""
    rng = random.Random(seed)
    index = rng.randint(1, DURABLE)
    path, offset = place_of(replica, index)
    at = offset + rng.randrange(48 + 100)
    bit = 1 << rng.randrange(8)
    print(f"seed {seed}: byte {at} of {path.name}, in entry {index}, bit {bit}")
    damage(path, at, bytes([path.read_bytes()[at] ^ bit]))
    (replica / "log" / "checkpoint").unlink()
    found = verify_replica(replica)
    first = found.faults[0]
    assert (first.severity, first.file, first.offset) == ("damaged", path.name, offset)
    assert found.last_index == ENTRIES
    with pytest.raises(CorruptLog, match=path.name):
        open_log(replica / "log", SEGMENT_BYTES)


def remove_a_segment(folder: Path) -> str:
    path = log_files(folder)[1]
    path.unlink()
    return "are missing"


def remove_the_first_segment(folder: Path) -> str:
    path = log_files(folder)[0]
    path.unlink()
    return f"the segments of positions 0 to {SEGMENT_BYTES} are missing"


def spoil_the_head(folder: Path) -> str:
    (folder / "log" / "head").write_bytes(b"DLHD....spoilt")
    return "where the log begins is lost"


def shorten_a_segment(folder: Path) -> str:
    path = log_files(folder)[1]
    with path.open("r+b") as file:
        file.truncate(1000)
    return "has 1000 bytes of 4096"


def lengthen_a_segment(folder: Path) -> str:
    with log_files(folder)[1].open("ab") as file:
        file.write(b"x")
    return "the file has 4097 bytes, more than a segment"


def lose_the_tail(folder: Path) -> str:
    for path in log_files(folder)[-3:]:
        damage(path, 0, bytes(SEGMENT_BYTES - 64))
    return "although it was durable up to 50"


def spoil_the_vote(folder: Path) -> str:
    damage(folder / "log" / "term", 20, b"\xff" * 600)
    return "neither copy of term and vote"


def put_an_old_vote_back(folder: Path) -> str:
    (folder / "log" / "term").unlink()
    with closing(HardStateFile(folder / "log" / "term", Disk())) as hard_state:
        hard_state.save(HardState(1, None))
    return "the saved term is 1, but the log has entries of term 3"


@pytest.mark.parametrize(
    ("spoil", "repairable"),
    [
        (remove_a_segment, True),
        (remove_the_first_segment, True),
        (spoil_the_head, False),
        (shorten_a_segment, True),
        (lengthen_a_segment, False),
        (lose_the_tail, True),
        (spoil_the_vote, False),
        (put_an_old_vote_back, False),
    ],
)
def test_damage_that_stops_a_start_is_damage_here(
    replica: Path, spoil: Callable[[Path], str], *, repairable: bool
) -> None:
    """A lost, shortened or longer file, zeros where durable entries were, a lost or old vote; and
    whether the group can repair it."""
    reason = spoil(replica)
    before = fingerprint(replica)
    found = verify_replica(replica)
    assert found.damaged
    assert any(reason in fault.what for fault in found.faults)
    assert found.is_repairable == repairable
    assert fingerprint(replica) == before


def test_a_log_whose_first_segments_were_removed_on_purpose_is_whole(replica: Path) -> None:
    """The file `head` says where a log begins; a segment that is lost behind that is missed."""
    log, _ = open_log(replica / "log", SEGMENT_BYTES)
    log.sync()
    log.commit_index = DURABLE
    job = log.trim(30)
    assert job is not None
    job.run()
    log.close()
    begins = int(log_files(replica)[0].stem)
    assert verify_replica(replica).damaged == 0
    log_files(replica)[0].unlink()
    (fault, *_) = verify_replica(replica).faults
    assert (fault.severity, fault.file) == ("damaged", f"{begins:020d}.seg")


def test_a_file_that_has_lost_its_end_is_damaged_though_nothing_says_how_far_it_was_durable(
    replica: Path,
) -> None:
    """A file without its end is damaged, though the mark of durability was in that end."""
    for path in log_files(replica):
        os.truncate(path, SEGMENT_BYTES - 64)
    (replica / "log" / "checkpoint").unlink()
    found = verify_replica(replica)
    assert found.damaged == len(log_files(replica))
    assert all(
        "has lost its end" in fault.what for fault in found.faults if fault.severity != "torn"
    )


def test_a_torn_tail_is_no_damage(replica: Path) -> None:
    """Behind the last surely durable entry a write was cut: a start wipes it and goes on."""
    path, offset = place_of(replica, ENTRIES)
    damage(path, offset + 60, bytes(40))
    found = verify_replica(replica)
    assert (found.damaged, found.torn) == (0, 1)
    assert found.faults[0].index == ENTRIES
    log, recovery = open_log(replica / "log", SEGMENT_BYTES)
    assert (log.last_index, recovery.torn_because is None) == (ENTRIES - 1, False)
    log.close()
    assert (verify_replica(replica).torn, verify_replica(replica).damaged) == (0, 0)


def test_a_checkpoint_that_does_not_check_is_stale(replica: Path) -> None:
    """A damaged checkpoint is stale: a start reads the whole log and loses nothing."""
    damage(replica / "log" / "checkpoint", 12, b"\xff\xff")
    found = verify_replica(replica)
    assert (found.damaged, found.torn, found.stale) == (0, 0, 1)


def test_what_is_no_replica_is_refused(tmp_path: Path) -> None:
    """The folder of something else, or a typing error."""
    with pytest.raises(ConfigError, match=r"no replica\.json"):
        verify_replica(tmp_path)


def test_the_command_shows_faults_and_entries(
    replica: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table for people, JSON for programs; exit status 1 if something is damaged."""
    assert status_of(["verifyLog", str(replica), "--dump", "2", "--from-index", "25"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:3]] == [
        ["INDEX", "TERM", "KIND"],
        ["25", "2", "messages"],
        ["26", "2", "messages"],
    ]
    assert lines[-1].endswith("all of it checks")
    path, offset = place_of(replica, 7)
    damage(path, offset + 50, b"!!")
    assert status_of(["verifyLog", str(replica), "-o", "json"]) == 1
    told = capsys.readouterr()
    verification = json.loads(told.out)["result"]["verification"]
    assert verification["faults"][0]["index"] == 7
    assert "1 place of what was durable" in told.err


def status_of(arguments: list[str]) -> object:
    try:
        main(arguments)
    except SystemExit as ended:
        return ended.code
    return 0
