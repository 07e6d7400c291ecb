"""Coverage-guided fuzzing of everything that reads bytes of strangers; a long run, by hand.

    pip install atheris && python tests/fuzz/fuzz_remoting.py -max_total_time=600

Whatever comes in, a reader answers with a value or with the error that servers expect of it; any
other exception is a finding, and the fuzzer writes its input to a file. The golden requests are the
seeds, if a folder of them is named: `--corpus DIR` writes them there first. The short form, with
hypothesis, is in the unit tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports():
    from broker.sql import parse_condition
    from dledger.errors import BadInput, DledgerError
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
    from dledger.remoting.headers import decode_header
    from dledger.remoting.message import batch_decode, properties_decode
    from dledger.remoting.record import Record, walk
    from dledger.remoting.record.batch import RecordBatch

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
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
    """One frame, then its header as every type that there is."""
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
    for start in walk(data):
        view = Record(memoryview(data)[start:])
        properties_decode(view.properties)
        view.check()
    RecordBatch.parse(bytearray(data), b"T", [(0, 1)])


def batch(data: bytes) -> None:
    """The items of a stock batch."""
    for item in batch_decode(data):
        properties_decode(item.properties)


def condition(data: bytes) -> None:
    """A consumer's SQL92 expression, for some message."""
    parse_condition(data.decode("utf-8", "replace"))({"a": "1", "b": "x"})


TARGETS: tuple[Callable[[bytes], None], ...] = (frame, stream, body, record, batch, condition)


def one_input(data: bytes) -> None:
    """The first byte chooses the reader."""
    if data:
        try:
            TARGETS[data[0] % len(TARGETS)](data[1:])
        except (DledgerError, BadInput):
            return


def write_corpus(folder: Path) -> None:
    """The golden requests as seeds for the frame reader and the stream reader."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in GOLDEN.glob("*.json"):
        for name, frame_hex in json.loads(path.read_text())["frames"].items():
            golden = bytes.fromhex(frame_hex)
            seed = f"{path.stem}-{name.split()[0]}"
            (folder / f"{seed}-frame").write_bytes(b"\0" + golden[4:])
            (folder / f"{seed}-stream").write_bytes(b"\1" + golden)


def main() -> None:
    """Hand over to the fuzzer; its own options follow ours."""
    arguments = sys.argv
    if "--corpus" in arguments:
        place = arguments.index("--corpus")
        folder = arguments[place + 1]
        write_corpus(Path(folder))
        arguments[place : place + 2] = [folder]
    atheris.Setup(arguments, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
