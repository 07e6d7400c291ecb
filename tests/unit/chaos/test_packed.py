"""A history as Parquet has the very events that were written, and is packed in batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from mqchaos.cluster.processes import ClusterError
from mqchaos.history import packed
from mqchaos.history.events import (
    Ack,
    Deliver,
    End,
    Event,
    Fault,
    HistoryWriter,
    Lead,
    Meta,
    Rebalance,
    Send,
    Vote,
    part_of,
    row_of,
)
from mqchaos.history.packed import Packer, closed_parts
from mqchaos.history.reading import read_history
from mqspark.history.packing import pack

EVENTS: list[Event] = [
    Meta(1, 7, "leader-kill", "T", True, {"broker-a": {"n0": "/s"}}),
    Send(2, "p", "m1", "T", "key", 2**32 - 1, 0),
    Send(3, "p", "m2", "T", "", 0, 1, due=2**62, transaction="commit"),
    Ack(4, "p", "m1", "T", "broker-a", 0, 0, 2**40, waiting=True),
    Deliver(5, "c", "g", "T", "broker-a", 7, 2**31 - 1, "m1", 5),
    Rebalance(6, "c", "g", "T", [("broker-a", 0), ("broker-a", 1)]),
    Lead(7, "broker-a", "n0", 3, 6, None),
    Vote(8, "broker-a", "n0", 3, None),
    Vote(9, "broker-a", "n1", 3, "n0"),
    Fault(10, "failpoint-kill", "broker-a", "n0", "log.staged"),
    End(11),
]


def written(path: Path, events: list[Event], part_bytes: int = 0) -> None:
    with HistoryWriter(path, part_bytes=part_bytes) as history:
        for event in events:
            history.write(event)
            history.flush()


def test_a_row_of_files_has_its_events_in_their_order(tmp_path: Path) -> None:
    """Files in a row keep their events' order, lines and Parquet side by side."""
    written(tmp_path / "client.jsonl", EVENTS, part_bytes=100)
    files = sorted(tmp_path.iterdir())
    assert files[0].name == "client.000001.jsonl"
    assert len(files) > 4
    assert list(read_history(tmp_path)) == EVENTS

    pack(files[0], tmp_path / "packed")
    (tmp_path / "packed" / "client.000001.parquet").rename(tmp_path / "client.000001.parquet")
    (tmp_path / "packed").rmdir()
    files[0].unlink()

    assert list(read_history(tmp_path)) == EVENTS


def test_every_event_comes_back_from_parquet_as_it_was(tmp_path: Path) -> None:
    """Nulls, large numbers and lists come back from Parquet; a torn line is passed over."""
    written(tmp_path / "client.jsonl", EVENTS)
    with (tmp_path / "client.jsonl").open("ab") as file:
        file.write(b'{"kind":"ack","t":12,"cl')
    pack(tmp_path / "client.jsonl", tmp_path / "packed")

    assert list(read_history(tmp_path / "packed")) == EVENTS


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("producer-0.jsonl", ("producer-0", 0)),
        ("producer-0.000012.parquet", ("producer-0", 12)),
        ("producer-0-2.000001.jsonl", ("producer-0-2", 1)),
        ("a.b.jsonl", ("a.b", 0)),
        ("a.12.jsonl", ("a.12", 0)),
        ("a.00000x.jsonl", ("a.00000x", 0)),
    ],
)
def test_a_name_says_whose_file_it_is_and_which(name: str, row: tuple[str, int]) -> None:
    """A file's name has its client and its part; a dot in a client's name is no part."""
    assert row_of(Path(name)) == row


def test_a_part_is_closed_once_there_is_a_later_one() -> None:
    """A part is packed once a later one exists, or at the end."""
    one, two, other = Path("one.jsonl"), Path("two.jsonl"), Path("other.jsonl")
    packed_first = part_of(one, 1).with_suffix(".parquet")
    files = [packed_first, part_of(one, 2), part_of(one, 3), part_of(two, 1), other]

    assert closed_parts(files) == [part_of(one, 2)]
    assert closed_parts([*files, part_of(two, 2).with_suffix(".parquet")]) == [
        part_of(one, 2),
        part_of(two, 1),
    ]


def test_parts_are_packed_while_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open part stays as lines until the end; then there is Parquet alone."""
    monkeypatch.setattr(packed, "PACK_EVERY_S", 0.01)
    folder = tmp_path / "history"
    folder.mkdir()
    packer = Packer(folder, tmp_path / "packing")

    async def run() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(packer.keep_packing)
                while len(list(folder.glob("*.parquet"))) < 1:  # noqa: ASYNC110 - a process's
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
            await packer.pack_rest()

    written(folder / "client.jsonl", EVENTS, part_bytes=600)
    assert len(list(folder.iterdir())) == 2
    trio.run(run)

    assert {file.suffix for file in folder.iterdir()} == {".parquet"}
    assert list(read_history(folder)) == EVENTS
    assert not any((tmp_path / "packing").iterdir())


def test_what_can_not_be_packed_ends_the_run(tmp_path: Path) -> None:
    """A file that can't be packed ends the run with the reason, and its lines stay."""
    folder = tmp_path / "history"
    folder.mkdir()
    written(folder / "client.jsonl", EVENTS)
    (tmp_path / "packing").write_text("in the way")
    with pytest.raises(ClusterError, match=r"client\.jsonl can't be packed"):
        trio.run(Packer(folder, tmp_path / "packing" / "x").pack_rest)
    assert (folder / "client.jsonl").exists()


READ = """
import sys
from pathlib import Path
from mqchaos.report.measure import timeline
from mqchaos.history.reading import read_history
found = timeline(read_history(Path(sys.argv[1])))
status = Path("/proc/self/status").read_text()
print(int(status.split("VmHWM:")[1].split()[0]) >> 10)
"""


def long_history(folder: Path, messages: int, part_bytes: int = 32 << 20) -> None:
    """Sends, acknowledgements and deliveries of three clients' rows, some thousand in flight."""
    folder.mkdir()
    behind = 1_000
    writers = {
        name: HistoryWriter(folder / f"{name}.jsonl", part_bytes=part_bytes)
        for name in ("harness", "producer-0", "consumer-0")
    }
    writers["harness"].write(EVENTS[0])
    for number in range(messages + behind):
        t, earlier = number * 1000, number - behind
        if number < messages:
            writers["producer-0"].write(Send(t, "p", f"m-{number:09}", "T", "k", 1, 100))
        if earlier >= 0:
            place = ("broker-a", earlier % 8, earlier // 8)
            name = f"m-{earlier:09}"
            writers["producer-0"].write(Ack(t + 1, "p", name, "T", *place, earlier * 200))
            writers["consumer-0"].write(Deliver(t + 2, "c", "g", "T", *place, name, 1))
    for writer in writers.values():
        with writer:
            writer.write(End((messages + behind) * 1000))


@pytest.mark.slow
@pytest.mark.parametrize("messages", [20_000, pytest.param(3_333_333, marks=pytest.mark.long)])
def test_a_report_is_made_of_any_length_in_the_same_memory(tmp_path: Path, messages: int) -> None:
    """A report on 60,000 events, or ten million in the long form, takes below 300 MiB."""
    long_history(tmp_path / "lines", messages)
    pack(tmp_path / "lines", tmp_path / "packed")

    argv = [sys.executable, "-c", READ, str(tmp_path / "packed")]
    peak_mib = int(subprocess.check_output(argv, text=True, env=dict(os.environ)))

    size = sum(file.stat().st_size for file in (tmp_path / "packed").iterdir())
    print(f"{messages * 3:,} events, {size >> 20} MiB as Parquet: {peak_mib} MiB at most")
    assert peak_mib < 300
