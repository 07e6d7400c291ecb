"""Readers of strangers' bytes, each as a function of the bytes.

Whatever comes in, a reader answers with a value or with the error that servers expect of it; any
other exception is a finding. `fuzz_strangers.py` tries them with a fuzzer; `test_corpus.py` gives
them the inputs that it found worth keeping.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from dledger.checksum import crc32
from dledger.errors import BadInput, DledgerError
from dledger.program.settings import parse_properties
from dledger.raft.membership.configuration import Member, decode_members, encode_members
from dledger.raft.messages import PREFIX, PeerKind, decode_message, split_run
from dledger.remoting import headers
from dledger.remoting.bodies import (
    ClusterInfo,
    HeartbeatData,
    LockBatchBody,
    RegisterBrokerBody,
    TopicRouteData,
    TopicStats,
    decode_body,
)
from dledger.remoting.codec import decode_frame
from dledger.remoting.framing import FrameDecoder
from dledger.remoting.headers import RegisterBrokerHeader, decode_header
from dledger.remoting.message import batch_decode, properties_decode
from dledger.remoting.record import Record, walk
from dledger.remoting.record.batch import RecordBatch
from dledger.remoting.record.encode import encode_record
from dledger.slices import drained
from mqbroker.requests.filters import parse_subscription
from mqbroker.sql import parse_condition
from mqbroker.state.control import (
    CommitOffsets,
    DropHead,
    check_control,
    decode_control,
    encode_control,
)
from mqbroker.state.decisions import decode_staged_note
from mqbroker.state.derived.indexing import index_entry, index_sends
from mqbroker.state.groups.given_up import decode_given_up
from mqbroker.state.once import decode_decision, decode_once
from mqnamesrv.routing.registration import read_registration

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
CORPUS = Path(__file__).with_name("corpus.txt")
CORPUS_BYTES_MAX = 100_000
BODIES = (
    HeartbeatData,
    LockBatchBody,
    TopicRouteData,
    ClusterInfo,
    RegisterBrokerBody,
    TopicStats,
)
HEADERS = [
    value
    for name, value in sorted(vars(headers).items())
    if isinstance(value, type) and name.endswith("Header")
]


def frame(data: bytes) -> None:
    """Read a frame, then its header as every type that there is."""
    command = decode_frame(memoryview(data))
    for kind in HEADERS:
        try:
            decode_header(kind, command)
        except DledgerError:
            continue


def stream(data: bytes) -> None:
    """Frames out of a stream, fed in two chunks."""
    decoder = FrameDecoder()
    for chunk in (data[: len(data) // 2], data[len(data) // 2 :]):
        decoder.feed(chunk)
        list(decoder.frames())


def body(data: bytes) -> None:
    """A JSON body in either dialect."""
    if data:
        decode_body(BODIES[data[0] % len(BODIES)], data[1:])


def record(data: bytes) -> None:
    """Records as pulls bring them, and as producers send them."""
    starts = walk(data)
    for start in starts:
        view = Record(memoryview(data)[start:])
        properties_decode(view.properties)
        view.check()
    RecordBatch(bytearray(data), b"T", [(0, len(starts))])


def batch(data: bytes) -> None:
    """The items of a stock batch."""
    for item in batch_decode(data):
        properties_decode(item.properties)


def condition(data: bytes) -> None:
    """A consumer's SQL92 expression, for some message."""
    parse_condition(data.decode("utf-8", "replace"))({"a": "1", "b": "x"})


def subscription(data: bytes) -> None:
    """Read a consumer's subscription by tags."""
    parse_subscription(data.decode("utf-8", "replace"), "TAG")


def registration(data: bytes) -> None:
    """Read a broker's registration, as JSON or compressed."""
    if data:
        header = RegisterBrokerHeader("b", "127.0.0.1:1", "c", "", 0, compressed=data[0] % 2 == 0)
        drained(read_registration(header, data[1:]))


def settings(data: bytes) -> None:
    """Settings that a tool sends to a server."""
    parse_properties(data)


def peer(data: bytes) -> None:
    """A frame at the peer port whose checksum is right, then the entries of its run."""
    if not data:
        return
    head, run = data[1 : 1 + data[0]], data[1 + data[0] :]
    counted = PREFIX.size - 4 + len(head) + len(run)
    prefix = PREFIX.pack(counted, len(head), crc32(run, crc32(head, len(head))))
    decode_message(memoryview(prefix + head + run))
    split_run(memoryview(run), 1, 2, 1 << 20)


def committed(data: bytes) -> None:
    """Entries that a broken leader may have committed: control, members, messages."""
    for decode in (
        lambda: check_control(decode_control(data), 0, 1),
        lambda: decode_members(data),
        lambda: decode_once(data),
        lambda: decode_given_up(data),
        lambda: decode_decision(data),
        lambda: decode_staged_note(data),
        lambda: index_entry(memoryview(data), 0),
        lambda: index_sends(memoryview(data), 0),
    ):
        try:
            decode()
        except DledgerError:
            continue


TARGETS: tuple[Callable[[bytes], None], ...] = (
    frame,
    stream,
    body,
    record,
    batch,
    condition,
    subscription,
    registration,
    settings,
    peer,
    committed,
)


def one_input(data: bytes) -> None:
    """The first byte chooses the reader."""
    if data:
        try:
            TARGETS[data[0] % len(TARGETS)](data[1:])
        except (DledgerError, BadInput):
            return


CONDITIONS = (
    "a > 5 AND b = 'x'",
    "a BETWEEN 1 AND 2 OR NOT (b IN ('x', 'y')) -- why",
    "b IS NOT NULL AND b STARTSWITH 'x' AND TRUE /* all */",
)
RECORDS = tuple(
    encode_record(
        topic=b"T",
        queue_id=0,
        body=b"body",
        properties=b"KEYS\x01a b\x02TAGS\x01x\x02UNIQ_KEY\x01" + b"0" * 32 + b"\x02",
        born_timestamp_ms=1,
        born_host=bytes(host_bytes),
    )
    for host_bytes in (8, 20)
)
SEEDS: dict[Callable[[bytes], None], tuple[bytes, ...]] = {
    condition: tuple(text.encode() for text in CONDITIONS),
    subscription: (b"*", b"a || b"),
    record: (*RECORDS, b"".join(RECORDS)),
    settings: (b"a=1\nb = two=2\n", b"# no\n\nc=3"),
    committed: (
        *RECORDS,
        encode_control(CommitOffsets([("G", "T", 0, 1)])),
        encode_control(DropHead(1, 2)),
        encode_members({"n0": Member("127.0.0.1", 1)}),
    ),
}


def write_corpus(folder: Path) -> None:
    """Seeds for every reader: the golden requests and their bodies, and some of each kind."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(name: str, reader: Callable[[bytes], None], data: bytes) -> None:
        number = TARGETS.index(reader)
        (folder / f"{name}-{reader.__name__}").write_bytes(bytes([number]) + data)

    for path in GOLDEN.glob("*.json"):
        for name, frame_hex in json.loads(path.read_text())["frames"].items():
            golden = bytes.fromhex(frame_hex)
            seed = f"{path.stem}-{name.split()[0]}"
            write(seed, frame, golden[4:])
            write(seed, stream, golden)
            try:
                inside = bytes(decode_frame(memoryview(golden)[4:]).payload)
            except DledgerError:
                continue
            for reader in (record, batch, committed):
                write(seed, reader, inside)
            for reader in (body, registration):
                write(seed, reader, b"\0" + inside)
    for reader, seeds in SEEDS.items():
        for number, data in enumerate(seeds):
            write(f"seed-{number}", reader, data)
    for number, line in enumerate(CORPUS.read_text().split()):
        (folder / f"kept-{number}").write_bytes(bytes.fromhex(line))
    for kind in PeerKind:
        head = msgspec.msgpack.encode((kind.value, 1, *range(8)))
        write(f"peer-{kind.name}", peer, bytes([len(head)]) + head)
