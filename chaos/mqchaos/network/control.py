"""The words between harness and proxy: what is broken now, by the name of what broke it.

The proxy listens on a socket in the cluster's own directory, which only its user can open. A
request is one line of JSON, and so is its answer, which comes when the request is in force.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import trio

from mqchaos.cluster.processes import ClusterError
from mqchaos.limits import CONTROL_LINE_BYTES_MAX, CONTROL_TIMEOUT_S
from mqchaos.network.rules import Direction, Rule

SOCKET_NAME = "control"


class Request(msgspec.Struct, frozen=True):
    """A request to break or to mend links. All may be left out: then the answer says how things
    are.

    `name` names the fault; `rule` is in force for its `directions` until it is `healed`. `reset`:
    the connections of these directions are reset now.
    """

    name: str = ""
    directions: list[Direction] = []
    rule: Rule | None = None
    healed: bool = False
    reset: bool = False


class Status(msgspec.Struct, frozen=True):
    """The state of all links. `touched`: by fault, the bytes that it held back, or connections
    reset."""

    touched: dict[str, int]
    connections: int


async def tell(folder: Path, request: Request) -> Status:
    """Ask the proxy of a folder. Raises ClusterError if it does not answer."""
    try:
        with trio.fail_after(CONTROL_TIMEOUT_S), short_path(folder) as path:
            async with await trio.open_unix_socket(path) as stream:
                await stream.send_all(msgspec.json.encode(request) + b"\n")
                return msgspec.json.decode(await read_line(stream), type=Status)
    except (OSError, trio.TooSlowError, trio.BrokenResourceError, msgspec.DecodeError) as error:
        raise ClusterError(f"the proxy of {folder} does not answer: {error!r}") from error


async def read_line(stream: trio.SocketStream) -> bytes:
    """Read a line of a bounded length."""
    line = bytearray()
    while not line.endswith(b"\n"):
        chunk = await stream.receive_some(65536)
        if not chunk or len(line) > CONTROL_LINE_BYTES_MAX:
            raise OSError("the line has no end")
        line += chunk
    return bytes(line)


@contextmanager
def short_path(folder: Path) -> Iterator[str]:
    """A name of the folder's socket that fits into an address, however long the folder's is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)
