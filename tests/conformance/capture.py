"""A program that captures one request of each code from each stock client, as golden bytes.

A packet socket on loopback watches the ports of a cluster while drivers run, so nothing stands
between client and server that could change a byte. Needs root. Writes tests/data/golden:

    python tests/conformance/capture.py
"""

from __future__ import annotations

import json
import socket
import struct
import tempfile
import threading
from pathlib import Path

import trio
from clients import CLIENTS, Client, java
from conftest import make_topics
from drivers import Run

from dledger.errors import FrameError
from dledger.remoting.codec import decode_frame
from dledger.remoting.codes import RequestCode
from dledger.remoting.command import HeaderEncoding
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.processes import free_ports

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
FEATURES = (
    "send_sync",
    "send_batch",
    "push_orderly",
    "retry",
    "lite_commit",
    "query_by_key",
    "resume",
)
FRAME_BYTES_KEPT_MAX = 4096
ETH_P_ALL, PACKET_OUTGOING = 3, 4

Stream = tuple[int, int]


class Watch:
    """The bytes that went to some loopback ports, by (source port, destination port)."""

    def __init__(self, ports: set[int]) -> None:
        self._ports = ports
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._socket.bind(("lo", 0))
        self._socket.settimeout(0.2)
        self._segments: dict[Stream, dict[int, bytes]] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> dict[Stream, bytes]:
        """End, and return each stream from its begin to its first gap."""
        self._stopped = True
        self._thread.join()
        self._socket.close()
        return {stream: joined(segments) for stream, segments in self._segments.items()}

    def _run(self) -> None:
        while not self._stopped:
            try:
                packet, address = self._socket.recvfrom(1 << 16)
            except TimeoutError:
                continue
            if address[2] == PACKET_OUTGOING and packet[9] == socket.IPPROTO_TCP:
                self._keep(packet[(packet[0] & 15) * 4 : struct.unpack_from(">H", packet, 2)[0]])

    def _keep(self, segment: bytes) -> None:
        source, destination, sequence = struct.unpack_from(">HHI", segment)
        payload = segment[(segment[12] >> 4) * 4 :]
        if destination in self._ports and payload:
            self._segments.setdefault((source, destination), {}).setdefault(sequence, payload)


def joined(segments: dict[int, bytes]) -> bytes:
    """Segments in the order of their sequence numbers, up to the first that is missing."""
    sequence = min(segments)
    stream = b""
    while payload := segments.get(sequence):
        stream += payload
        sequence = (sequence + len(payload)) % (1 << 32)
    return stream


def requests(stream: bytes) -> dict[int, bytes]:
    """The first whole request frame of each code."""
    found: dict[int, bytes] = {}
    while len(stream) >= 4:
        size = 4 + int.from_bytes(stream[:4], "big")
        frame, stream = stream[:size], stream[size:]
        if len(frame) == size:
            try:
                command = decode_frame(memoryview(frame)[4:])
            except FrameError:
                continue
            ours = command.encoding == HeaderEncoding.MSGPACK
            if not ours and not command.is_response and size <= FRAME_BYTES_KEPT_MAX:
                found.setdefault(command.code, frame)
    return found


def capture(client: Client, argv: list[str], name: str, cluster: Cluster, folder: Path) -> None:
    """Run one driver and write down the streams that it sent."""
    layout = cluster.layout
    watch = Watch({layout.namesrvs[0].port, *(node.port for node in layout.nodes)})
    try:
        Run(client, argv, layout.namesrv_addr, folder).scenarios()
    finally:
        streams = watch.stop()
    found: dict[int, bytes] = {}
    for stream in streams.values():
        found = requests(stream) | found
    frames = {
        f"{code} {RequestCode(code).name}": frame.hex() for code, frame in sorted(found.items())
    }
    document = {"client": f"{client.title} {client.version}", "frames": frames}
    (GOLDEN / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{name}: {len(frames)} requests")


def main() -> None:
    """Capture all clients, and the newest Java client with the binary header, too."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        layout = plan(free_ports(ports_needed(3, 2, 1)), nodes=3, groups=2, namesrvs=1)
        cluster = Cluster.create(Path(temporary) / "cluster", layout)
        with cluster.running():
            trio.run(make_topics, cluster)
            for client in CLIENTS:
                chosen = tuple(name for name in client.features if name in FEATURES)
                some = Client(client.name, client.title, client.version, client.prepare, chosen)
                argv = client.prepare(client)
                capture(some, argv, f"{client.name}-json", cluster, Path(temporary))
                if client.name.startswith("java"):
                    binary = [java(client)[0], "-Drocketmq.serialize.type=ROCKETMQ", *argv[1:]]
                    capture(some, binary, f"{client.name}-rocketmq", cluster, Path(temporary))


if __name__ == "__main__":
    main()
