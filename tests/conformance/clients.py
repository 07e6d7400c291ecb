"""The stock clients: which, at which version, how they are fetched, built and started.

Each is the published artefact, unmodified, from the package registry of its language, and kept in
`.cache/conformance` of the clone. Ours is only a driver beside it: a small program in the client's
language that uses it as an application would and prints JSON lines. What is there is not fetched
again; what can't be had raises `Missing`, whose text says what to install.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "conformance"
FETCH_TIMEOUT_S = 600


class Missing(Exception):
    """A client can't be had on this machine; the text says why."""


@dataclass(frozen=True)
class Client:
    """One stock client.

    `name` begins its topics and groups; `prepare` fetches and builds it, and returns the command
    line that starts its driver.
    """

    name: str
    title: str
    version: str
    prepare: Callable[[Client], list[str]]
    features: tuple[str, ...]

    @property
    def home(self) -> Path:
        """Where it lies, with all that it needs."""
        return CACHE / f"{self.name}-{self.version}"


def tool(name: str, package: str) -> str:
    """The path of a program; Missing names the Debian package that has it."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed (Debian: {package})")
    return found


def run(argv: Sequence[str], cwd: Path, **environment: str) -> None:
    """A step of fetching or building; what it printed is told if it fails."""
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-12:])
        raise Missing(f"`{' '.join(argv[:3])} ...` failed:\n{tail}")


def once(client: Client, sources: Sequence[Path], make: Callable[[], None]) -> None:
    """Call `make` with an empty home, unless it was made from these very sources."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    stamp = client.home / "made-from"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    shutil.rmtree(client.home, ignore_errors=True)
    client.home.mkdir(parents=True)
    make()
    stamp.write_text(digest.hexdigest())


# --- Java -----------------------------------------------------------------------------------------

EXAMPLES = {"4.9.8": "4.7.0", "5.5.0": "5.5.0"}
"""Of the examples not every version was published: the nearest one for each client."""


def prepare_java(client: Client) -> list[str]:
    """The client's jars and ours, compiled against them."""
    maven, javac = tool("mvn", "maven"), tool("javac", "openjdk-17-jdk-headless")
    tool("java", "openjdk-17-jdk-headless")
    sources = sorted((HERE / "java").glob("*.java"))

    def make() -> None:
        versions = {"rocketmq": client.version, "example": EXAMPLES[client.version]}
        run(
            [
                maven,
                "-q",
                "-B",
                f"-Dmaven.repo.local={CACHE / 'maven'}",
                *(f"-D{name}.version={version}" for name, version in versions.items()),
                "-DincludeScope=runtime",
                f"-DoutputDirectory={client.home / 'lib'}",
                "dependency:copy-dependencies",
            ],
            HERE / "java",
        )
        classes = ["-nowarn", "-d", str(client.home / "classes"), "-cp", f"{client.home}/lib/*"]
        run([javac, *classes, *map(str, sources)], HERE / "java")

    once(client, [*sources, HERE / "java" / "pom.xml"], make)
    return [*java(client), "Driver"]


def java(client: Client, *, tools: bool = False) -> list[str]:
    """The JVM with the client's class path; a small one, since several share the machine.

    The tools' jar is left out for applications, as it brings a logging configuration of its own.
    """
    jars = sorted((client.home / "lib").glob("*.jar"))
    jars = [jar for jar in jars if tools or not jar.name.startswith("rocketmq-tools")]
    return [
        tool("java", "openjdk-17-jdk-headless"),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Duser.home={client.home}",
        "-cp",
        ":".join(map(str, [client.home / "classes", *jars])),
    ]


JAVA_FEATURES = (
    "send_sync",
    "send_async",
    "send_oneway",
    "send_batch",
    "send_selector",
    "send_compressed",
    "auto_topic",
    "push_clustering",
    "push_broadcast",
    "push_orderly",
    "tag_filter",
    "from_first",
    "from_last",
    "from_timestamp",
    "resume",
    "pull_old",
    "search_offset",
    "lite_subscribe",
    "lite_assign_seek",
    "lite_commit",
    "delay",
    "retry",
    "retry_orderly",
    "dead_letter",
    "query_by_id",
    "query_by_unique_id",
    "query_by_key",
    "trace",
    "namespace",
    "vip_channel",
    "request_reply",
)

CLIENTS = (
    Client("java4", "Java", "4.9.8", prepare_java, JAVA_FEATURES),
    Client("java5", "Java", "5.5.0", prepare_java, JAVA_FEATURES),
)
