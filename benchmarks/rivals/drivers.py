"""Programs that load a system by one of its clients: how they are built, and run.

What they need is kept in `.cache/peers` of the clone: the C client's headers are Debian's
(libnats-dev), nats-py and nats-server come from their registries, RocketMQ's jars from Maven
Central. What can't be had raises `Missing`, whose text says what to install.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache" / "peers"
NATS_PY = "nats-py==2.9.0"
NATS_SERVER = "github.com/nats-io/nats-server/v2@v2.12.2"
BUILD_TIMEOUT_S = 900
RUN_TIMEOUT_S = 120

sys.path.insert(0, str(ROOT / "examples" / "attach"))


class Missing(Exception):
    """A system or a client can't be had on this machine; the text says why."""


def tool(name: str, package: str) -> str:
    """The path of a program; Missing names the Debian package that has it."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed (Debian: {package})")
    return found


def build(argv: Sequence[str], package: str = "", **environment: str) -> None:
    """A step of building; what it printed is told if it fails, with the Debian package that it
    needs."""
    done = subprocess.run(
        argv,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        said = "\n".join(done.stdout.splitlines()[-8:]).replace(f"{ROOT}/", "")
        needs = f" (Debian: {package})" if package else ""
        step = f"{Path(argv[0]).name} {' '.join(argv[1:3])} ..."
        raise Missing(f"`{step}` failed{needs}:\n{said}")


def newer(made: Path, source: Path) -> bool:
    """Whether what was made is from this source."""
    return made.exists() and made.stat().st_mtime >= source.stat().st_mtime


def nats_server() -> str:
    """The newest server by Go, as the registry of Go modules has it; else Debian's."""
    built = CACHE / "bin" / "nats-server"
    if not built.exists() and shutil.which("go"):
        folders = {"GOPATH": str(CACHE / "go"), "GOBIN": str(CACHE / "bin")}
        with contextlib.suppress(Missing):
            build(["go", "install", NATS_SERVER], GOFLAGS="-modcacherw", **folders)
    return str(built) if built.exists() else tool("nats-server", "nats-server")


def nats_py() -> list[str]:
    """nats-py, in an environment of its own."""
    home = CACHE / "venv"
    python = home / "bin" / "python"
    if not (home / "done").exists():
        venv.create(home, with_pip=True)
        build([str(python), "-m", "pip", "install", "-q", NATS_PY])
        (home / "done").touch()
    return [str(python), str(HERE / "drive_nats.py")]


def nats_c() -> list[str]:
    """NATS's C client."""
    program, source = CACHE / "drive_nats", HERE / "drive_nats.c"
    if not newer(program, source):
        CACHE.mkdir(parents=True, exist_ok=True)
        gcc = tool("gcc", "gcc libnats-dev")
        build([gcc, "-O2", "-o", str(program), str(source), "-lnats"], package="libnats-dev")
    return [str(program)]


def java() -> list[str]:
    """RocketMQ's stock Java client."""
    tool("mvn", "maven")
    javac = tool("javac", "openjdk-17-jdk-headless")
    import rocketmq  # noqa: PLC0415 - of the examples, whose folder is on the path by now

    try:
        jars = rocketmq.fetch()
    except (subprocess.SubprocessError, OSError) as error:
        raise Missing(f"RocketMQ's jars: {error}") from error
    source, classes = HERE / "DriveRocketMq.java", CACHE / "classes"
    if not newer(classes / "DriveRocketMq.class", source):
        build([javac, "-nowarn", "-d", str(classes), "-cp", f"{jars}/*", str(source)])
    home = f"-Duser.home={CACHE}"
    words = ["java", "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", home, "-cp"]
    return [*words, f"{classes}:{jars}/*", "DriveRocketMq"]


def ours() -> list[str]:
    """Our own client."""
    return [sys.executable, str(HERE / "drive_ours.py")]


def bare(loop: str) -> list[str]:
    """No logic at all."""
    return [sys.executable, str(HERE / "bare.py"), loop]


CLIENTS = {
    "ours": ours,
    "nats-c": nats_c,
    "nats-py": nats_py,
    "java": java,
    "bare-epoll": partial(bare, "epoll"),
    "bare-trio": partial(bare, "trio"),
}


def arguments(
    address: str, topic: str, work: str, size_bytes: int = 0, seconds: float = 0, count: int = 0
) -> list[str]:
    """As all programs take them."""
    return [address, topic, work, str(size_bytes), str(seconds), str(count)]


def run(command: Sequence[str], words: Sequence[str], processes: int = 1) -> dict[str, float]:
    """Run a program, several at once if need be; what they said, added up."""
    running = [
        subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(processes)
    ]
    said = []
    try:
        for process in running:
            out, err = process.communicate(timeout=RUN_TIMEOUT_S)
            lines = [line for line in out.decode().splitlines() if line.startswith("{")]
            if process.returncode or not lines:
                text = " / ".join(err.decode(errors="replace").splitlines()[-3:])
                raise RuntimeError(f"{words[2]} by {Path(command[0]).name}: {text}")
            said.append(json.loads(lines[-1]))
    finally:
        for process in running:
            process.kill()
            process.wait()
    total = dict(said[0])
    for other in said[1:]:
        for name in ("count", "cpu_s", "sent"):
            total[name] += other[name]
        total["seconds"] = max(total["seconds"], other["seconds"])
    return total


class Gaps:
    """A program that sends without end, and tells of its gaps."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._told: list[tuple[float, float]] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with contextlib.suppress(ValueError):
                when, longest = map(float, line.split())
                self._told.append((when, longest))

    def wait_until_steady(self, since: float, for_s: float, timeout_s: float) -> None:
        """Until sends have succeeded for a while, from a moment on."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if self._told and self._told[-1][0] > since + for_s:
                return
            time.sleep(0.05)
        raise RuntimeError(f"no send succeeded for {timeout_s:.0f} s")

    def longest_since(self, since: float) -> float:
        """The longest gap that ended after a moment."""
        return max(longest for when, longest in self._told if when > since)


@contextmanager
def sending(command: Sequence[str], words: Sequence[str]) -> Iterator[Gaps]:
    """The work `gaps`, until the block ends."""
    process = subprocess.Popen(
        [*command, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Gaps(process)
    finally:
        process.kill()
        process.wait()
