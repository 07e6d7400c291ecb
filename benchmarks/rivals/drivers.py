"""Programs that load a system by one of its clients: how they are built, and run.

What they need is kept in `.cache/peers` of the clone: the C client's headers are Debian's
(libnats-dev), the others come from their languages' registries. Versions are pinned; a test fails
when one is older than a year. What can't be had raises `Missing`, whose text says what to install.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache" / "peers"
NODES = ("n0", "n1", "n2")
NATS_SERVER = "2.15.3"
NATS_PY = "2.16.0"
NATS_GO = "1.55.0"
KAFKA = "4.4.0"
KAFKA_PY = "2.16.1"
RABBITMQ_JAVA = "5.37.1"
ROCKETMQ_5 = "5.5.0"
SPARK = "4.2.0"
KAFKA_OF_SPARK = "4.3.1"
PINNED = {
    "nats-server": (NATS_SERVER, "2026-11"),
    "nats-py": (NATS_PY, "2026-11"),
    "nats.go": (NATS_GO, "2026-11"),
    "Kafka": (KAFKA, "2026-11"),
    "confluent-kafka": (KAFKA_PY, "2026-11"),
    "RocketMQ 5": (ROCKETMQ_5, "2026-11"),
    "amqp-client": (RABBITMQ_JAVA, "2026-11"),
}
"""The versions that are fetched, and the month in which each was the newest release.
`benchmarks/spark` compares one version of Spark, and a Kafka of its time."""

NATS_C_HEADER = Path("/usr/include/nats/version.h")

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>dledger.benchmarks</groupId>
<artifactId>jars</artifactId><version>1</version><dependencies>{}</dependencies><build><plugins>
<plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
<version>3.8.1</version></plugin></plugins></build></project>
"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
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


def go(*words: str, folder: Path | None = None) -> None:
    """A step of Go's, with its modules and programs in the cache."""
    tool("go", "golang-go")
    places = {"GOPATH": str(CACHE / "go"), "GOBIN": str(CACHE / "bin")}
    inside = [] if folder is None else ["-C", str(folder)]
    build(["go", *inside, *words], GOFLAGS="-modcacherw", **places)


def nats_server() -> str:
    """The pinned server by Go, as the registry of Go modules has it; else Debian's."""
    built = CACHE / "bin" / f"nats-server-{NATS_SERVER}"
    if not built.exists():
        with contextlib.suppress(Missing):
            go("install", f"github.com/nats-io/nats-server/v2@v{NATS_SERVER}")
            (CACHE / "bin" / "nats-server").rename(built)
    return str(built) if built.exists() else tool("nats-server", "nats-server")


def in_python(requirement: str, driver: str, *others: str) -> list[str]:
    """A driver in an environment of its own, with one package, and others if need be."""
    home = CACHE / f"venv-{requirement}"
    python = home / "bin" / "python"
    if not (home / "done").exists():
        venv.create(home, with_pip=True)
        build([str(python), "-m", "pip", "install", "-q", requirement, *others])
        (home / "done").touch()
    return [str(python), str(HERE / driver)]


def nats_py() -> list[str]:
    """Command of the driver on nats-py, in an environment of its own."""
    return in_python(f"nats-py=={NATS_PY}", "drive_nats.py")


def nats_go() -> list[str]:
    """Command of the driver on NATS's Go client, built if it is not there."""
    program, folder = CACHE / "bin" / "drive_nats_go", HERE / "nats_go"
    if not newer(program, folder / "drive.go") or not newer(program, folder / "go.mod"):
        go("build", "-o", str(program), ".", folder=folder)
    return [str(program)]


def nats_c() -> list[str]:
    """Command of the driver on NATS's C client, built if it is not there."""
    program, source = CACHE / "drive_nats", HERE / "drive_nats.c"
    if not newer(program, source):
        CACHE.mkdir(parents=True, exist_ok=True)
        gcc = tool("gcc", "gcc libnats-dev")
        build([gcc, "-O2", "-o", str(program), str(source), "-lnats"], package="libnats-dev")
    return [str(program)]


def jars(name: str, version: str, *artifacts: str) -> Path:
    """Artifacts of a version, "group:artifact", with what they need, from Maven Central."""
    home = CACHE / f"{name}-{version}"
    if not (home / "done").exists():
        home.mkdir(parents=True, exist_ok=True)
        wanted = "".join(DEPENDENCY.format(*each.split(":"), version) for each in artifacts)
        (home / "pom.xml").write_text(POM.format(wanted))
        places = (f"-Dmaven.repo.local={CACHE / 'maven'}", f"-DoutputDirectory={home / 'lib'}")
        goal = ("-DincludeScope=runtime", "dependency:copy-dependencies")
        build([tool("mvn", "maven"), "-q", "-B", "-f", str(home / "pom.xml"), *places, *goal])
        (home / "done").touch()
    return home / "lib"


def kafka_jars(version: str = KAFKA) -> Path:
    """Kafka's server and Java client."""
    return jars("kafka", version, "org.apache.kafka:kafka_2.13")


def spark() -> list[str]:
    """PySpark with this checkout; the first argument is the folder of Kafka's source and sink."""
    lib = jars("spark-kafka", SPARK, "org.apache.spark:spark-sql-kafka-0-10_2.13")
    program = in_python(f"pyspark=={SPARK}", "drive_spark.py", "-e", f"{ROOT}[spark]")
    return [*program, str(lib)]


def rocketmq_5_jars() -> Path:
    """RocketMQ 5's broker, name server with controller, and Java client."""
    names = ("broker", "namesrv", "controller", "client")
    return jars("rocketmq", ROCKETMQ_5, *(f"org.apache.rocketmq:rocketmq-{name}" for name in names))


def in_java(source: Path, lib: Path, classes: Path) -> list[str]:
    """A driver in Java, compiled against these jars."""
    javac = tool("javac", "openjdk-17-jdk-headless")
    sources = source, HERE / "Timing.java"
    if not all(newer(classes / f"{each.stem}.class", each) for each in sources):
        build([javac, "-nowarn", "-d", str(classes), "-cp", f"{lib}/*", *map(str, sources)])
    home = f"-Duser.home={CACHE}"
    words = ["java", "-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", home, "-cp"]
    return [*words, f"{classes}:{lib}/*", source.stem]


def kafka_java() -> list[str]:
    """Command of the driver on Kafka's Java client, compiled if need be."""
    return in_java(HERE / "DriveKafka.java", kafka_jars(), CACHE / "classes-kafka")


def kafka_py() -> list[str]:
    """Kafka by librdkafka, from Python."""
    return in_python(f"confluent-kafka=={KAFKA_PY}", "drive_kafka.py")


def rabbitmq_java() -> list[str]:
    """Command of the driver on RabbitMQ's Java client, compiled if need be."""
    lib = jars("amqp-client", RABBITMQ_JAVA, "com.rabbitmq:amqp-client")
    return in_java(HERE / "DriveRabbit.java", lib, CACHE / "classes-rabbitmq")


def java_5() -> list[str]:
    """RocketMQ 5's stock Java client."""
    return in_java(HERE / "DriveRocketMq.java", rocketmq_5_jars(), CACHE / "classes-5")


def java() -> list[str]:
    """Command of the driver on RocketMQ's stock Java client, compiled if need be."""
    tool("mvn", "maven")
    import rocketmq  # noqa: PLC0415 - of the examples, whose folder is on the path by now

    try:
        lib = rocketmq.fetch()
    except (subprocess.SubprocessError, OSError) as error:
        raise Missing(f"RocketMQ's jars: {error}") from error
    return in_java(HERE / "DriveRocketMq.java", lib, CACHE / "classes")


def ours() -> list[str]:
    """Command of the driver on our own client, in this Python."""
    return [sys.executable, str(HERE / "drive_ours.py")]


def bare(loop: str) -> list[str]:
    """Command of the floor, by `loop`: "epoll" or "trio"."""
    return [sys.executable, str(HERE / "bare.py"), loop]


CLIENTS: dict[str, Callable[[], list[str]]] = {
    "ours": ours,
    "nats-c": nats_c,
    "nats-go": nats_go,
    "nats-py": nats_py,
    "java": java,
    "java-5": java_5,
    "kafka-java": kafka_java,
    "kafka-py": kafka_py,
    "rabbitmq-java": rabbitmq_java,
    "bare-epoll": partial(bare, "epoll"),
    "bare-trio": partial(bare, "trio"),
}


def client_versions() -> dict[str, str]:
    """The clients' versions, by name."""
    names = ("nats.go", "nats-py", "Kafka", "confluent-kafka", "amqp-client")
    pinned = {name: PINNED[name][0] for name in names}
    header = NATS_C_HEADER.read_text() if NATS_C_HEADER.exists() else ""
    found = re.search(r'NATS_VERSION_STRING "(.+?)"', header)
    return ({"nats.c": found[1]} if found else {}) | pinned


def arguments(
    address: str, topic: str, work: str, size_bytes: int = 0, seconds: float = 0, count: int = 0
) -> list[str]:
    """Arguments of a program, as all programs take them."""
    return [address, topic, work, str(size_bytes), str(seconds), str(count)]


def run(
    command: Sequence[str],
    words: Sequence[str],
    processes: int = 1,
    environment: Mapping[str, str] | None = None,
) -> dict[str, float]:
    """Run a program, several at once if need be; what they said, added up."""
    given = {**os.environ, **(environment or {})}
    running = [
        subprocess.Popen(
            [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=given
        )
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
        """Wait until sends have succeeded for `for_s` seconds, from a moment on."""
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
