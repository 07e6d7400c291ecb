"""Stock clients: their versions, and how they are fetched, built and started.

Each is the published artefact, unmodified, from the package registry of its language, and kept in
`.cache/conformance` of the clone. Ours is only a driver beside it: a small program in the client's
language that uses it as an application would and prints JSON lines. A client that is there is not
fetched again; one that can't be had raises `Missing`, whose text says what to install.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "conformance"
FETCH_TIMEOUT_S = 600
BRIEF = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that does not run for long: it compiles less, and needs half the time."""


class Missing(Exception):
    """A client can't be had on this machine; the text says why."""


@dataclass(frozen=True)
class Client:
    """A stock client that is tried here.

    `name` begins its topics and groups; `prepare` fetches and builds it, and returns the command
    line that starts its driver; `at_once` scenarios run beside each other.
    """

    name: str
    title: str
    version: str
    prepare: Callable[[Client], list[str]]
    features: tuple[str, ...]
    at_once: int = 6

    @property
    def home(self) -> Path:
        """The client's folder, with all that it needs."""
        return CACHE / f"{self.name}-{self.version}"


def tool(name: str, package: str) -> str:
    """The path of a program; Missing names the Debian package that has it."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed (Debian: {package})")
    return found


def ready(client: Client) -> list[str]:
    """The command that starts the client's driver. The test is skipped without the client."""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        return client.prepare(client)
    except Missing as reason:
        pytest.skip(f"{client.title} {client.version}: {reason}")


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
"""Versions of the examples for each client's version: not every one was published."""


def prepare_java(client: Client) -> list[str]:
    """The client's jars and the driver."""
    sources = sorted((HERE / "java").glob("*.java"))
    versions = {"rocketmq": client.version, "example": EXAMPLES[client.version]}
    make_java(client, HERE / "java", sources, versions)
    return [*java(client), "Driver"]


def make_java(
    client: Client, folder: Path, sources: Sequence[Path], versions: Mapping[str, str]
) -> None:
    """The jars that the folder's pom.xml names, and the sources, compiled against them."""
    maven, javac = tool("mvn", "maven"), tool("javac", "openjdk-17-jdk-headless")
    tool("java", "openjdk-17-jdk-headless")

    def make() -> None:
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
            folder,
            MAVEN_OPTS=" ".join(BRIEF),
        )
        classes = ["-nowarn", "-d", str(client.home / "classes"), "-cp", f"{client.home}/lib/*"]
        run([javac, *(f"-J{each}" for each in BRIEF), *classes, *map(str, sources)], folder)

    once(client, [*sources, folder / "pom.xml"], make)


def java(client: Client, *, tools: bool = False) -> list[str]:
    """The JVM with the client's class path; a small one, since several share the machine.

    The tools' jar is left out for applications, as it brings a logging configuration of its own.
    """
    jars = sorted((client.home / "lib").glob("*.jar"))
    jars = [jar for jar in jars if tools or not jar.name.startswith("rocketmq-tools")]
    return [
        tool("java", "openjdk-17-jdk-headless"),
        "-Xmx256m",
        *BRIEF,
        f"-Duser.home={client.home}",
        f"-Drocketmq.home.dir={client.home / 'mqadmin'}",
        "-cp",
        ":".join(map(str, [client.home / "classes", *jars])),
    ]


SENDING = (
    "send_sync",
    "send_async",
    "send_oneway",
    "send_batch",
    "send_selector",
    "send_compressed",
    "auto_topic",
    "send_again",
)
JAVA_FEATURES = (
    *SENDING,
    "push_clustering",
    "push_broadcast",
    "push_orderly",
    "tag_filter",
    "sql_filter",
    "sql_filter_lite",
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

# --- Go, Node, C++ --------------------------------------------------------------------------------


def prepare_go(client: Client) -> list[str]:
    """A driver with the client built into it."""
    go = tool("go", "golang-go")
    sources = sorted((HERE / "go").iterdir())
    folders = {"GOMODCACHE": CACHE / "go" / "modules", "GOCACHE": CACHE / "go" / "build"}
    environment = {"CGO_ENABLED": "0", **{name: str(path) for name, path in folders.items()}}

    def make() -> None:
        # Writable, so that the cache can be removed like any other; to optimize takes longer than
        # all that the driver does.
        options = ["-modcacherw", "-gcflags=all=-N -l", "-o", f"{client.home}/driver"]
        run([go, "build", *options, "."], HERE / "go", **environment)

    once(client, sources, make)
    return [str(client.home / "driver")]


def prepare_node(client: Client) -> list[str]:
    """The package beside a copy of the driver."""
    npm, node = tool("npm", "npm"), tool("node", "nodejs")
    sources = sorted((HERE / "node").iterdir())

    def make() -> None:
        for source in sources:
            shutil.copy(source, client.home)
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--cache", str(CACHE / "npm")]
        run([npm, "install", *options], client.home)

    once(client, sources, make)
    return [node, str(client.home / "driver.js")]


def prepare_cpp(client: Client) -> list[str]:
    """The binding's wheel, which has the C++ client inside."""
    driver = HERE / "cpp" / "driver.py"

    def make() -> None:
        target = ["--no-deps", "--target", str(client.home / "wheel")]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--cache-dir", str(CACHE / "pip")]
        run([*pip, *target, f"rocketmq=={client.version}"], client.home)

    once(client, [driver], make)
    path = f"import sys; sys.path.insert(0, {str(client.home / 'wheel')!r})"
    start = f"{path}; import runpy; runpy.run_path({str(driver)!r}, run_name='__main__')"
    return [sys.executable, "-P", "-c", start]


GO_FEATURES = (
    "push_orderly_alone",
    *SENDING,
    "push_clustering",
    "push_broadcast",
    "tag_filter",
    "sql_filter",
    "from_first",
    "from_last",
    "resume",
    "delay",
    "retry",
    "dead_letter",
    "namespace",
    "request_reply",
)
NODE_FEATURES = (
    "push_clustering",
    "retry",
    "send_sync",
    "send_compressed",
    "send_again",
    "push_broadcast",
    "tag_filter",
    "resume",
    "delay",
)
CPP_FEATURES = (
    "send_sync",
    "send_oneway",
    "send_selector",
    "send_compressed",
    "auto_topic",
    "send_again",
    "push_clustering_alone",
    "push_orderly_alone",
    "push_broadcast",
    "tag_filter",
    "delay",
    "retry",
)

LONG_FEATURES = {
    "sql_filter_lite",
    "from_first",
    "from_last",
    "from_timestamp",
    "pull_old",
    "search_offset",
    "lite_assign_seek",
    "lite_commit",
    "retry_orderly",
    "query_by_unique_id",
    "trace",
    "namespace",
    "vip_channel",
}
"""Scenarios of `--all` alone: rare in applications, or much like others."""

CLIENTS = (
    Client("java4", "Java", "4.9.8", prepare_java, JAVA_FEATURES),
    Client("java5", "Java", "5.5.0", prepare_java, (*JAVA_FEATURES, "recall", "pop", "pop_retry")),
    Client("go", "Go (rocketmq-client-go)", "2.1.2", prepare_go, GO_FEATURES),
    Client("node", "Node (ali-ons)", "3.12.0", prepare_node, NODE_FEATURES),
    Client("cpp", "C++ (rocketmq wheel)", "0.4.4", prepare_cpp, CPP_FEATURES),
)

LONG_CLIENT = "java4"
"""The one of two releases of a client that only `--all` takes through scenarios of its own."""


def each_of(
    *names: str, feature: str | None = None, long: Collection[str] = ()
) -> list[ParameterSet]:
    """Parameters of a test: the clients of these names that have the feature.

    Those in `long`, and the older of two releases, run with `--all` only.
    """
    return [
        pytest.param(
            *((client,) if feature is None else (client, feature)),
            id=client.name,
            marks=[pytest.mark.long] if client.name in {LONG_CLIENT, *long} else [],
        )
        for client in CLIENTS
        if client.name in {*names, *long}
    ]
