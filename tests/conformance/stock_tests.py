"""RocketMQ's own integration tests, as they are published, against a cluster of ours.

The classes are in `org.apache.rocketmq:rocketmq-test`, classifier `tests`, and run unmodified under
JUnit's own runner, in one JVM. They extend `BaseConf`, which starts name servers and brokers in the
test's process; in its place stands ours (`java/stock`), which is told where the cluster is. Objects
of brokers that a test wants are stand-ins that ask over the wire. What they can't answer makes the
test *not applicable*, with the method's name for a reason; so are the classes listed below.

    python tests/conformance/stock_tests.py                   # all
    python tests/conformance/stock_tests.py tag. OrderMsgIT   # those with this in their names

A run of all is kept in `stock_tests.json`, and is a section of docs/reference/compatibility.md;
`--keep` puts a run of some classes in the place of what is kept of these.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trio
from clients import BRIEF, CACHE, HERE, Client, Missing, make_java, tool
from compatibility import PAGE, STOCK_TESTS, with_stock_tests

from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.layout import plan, ports_needed
from mqchaos.cluster.probe import serving
from mqchaos.cluster.processes import free_ports

PACKAGE = "org.apache.rocketmq.test."
GROUPS = 3
"""The tests count on three brokers."""
CLASS_TIMEOUT_S = 400
MODES = ("enforcing", "permissive")

NOT_OURS = (
    (
        "client.consumer.pop.PopPriorityIT",
        "has parameters, which our runner does not give",
    ),
    (
        "client.consumer.pop.PopMessageAndForwardingIT",
        "needs a newer JUnit than the one it is published with",
    ),
    (
        "client.consumer.pop.PopOrderlyIT.testPopMessageOrderlyThenChangeInvisibleTimeMidMessage",
        "expects an acknowledged message once more, as one before it is not (here it never comes)",
    ),
    (
        "client.producer.batch.BatchSendIT.testBatchSend_SysInnerBatch",
        "batches that are one record of a queue (`queue.type=BatchCQ`; here each message is one)",
    ),
    (
        "recall.RecallWithTraceIT",
        "takes back a message that was never sent, and expects success",
    ),
    ("recall.SendAndRecallDelayMessageIT", "has parameters, which our runner does not give"),
    ("statictopic.", "static topics"),
    ("grpc.", "gRPC"),
    ("autoswitchrole.", "starts brokers and a controller in its process"),
    ("container.", "starts a container of brokers in its process"),
    ("dledger.", "starts brokers in its process"),
    ("lmq.", "tries a benchmark, without a broker"),
    ("schema.", "compares the names of Java classes, without a broker"),
)
"""Packages, classes and tests that don't fit, with the reasons."""


@dataclass(frozen=True)
class Result:
    """The outcome of a test: "passed", "failed" or "not applicable"."""

    outcome: str
    name: str
    """The test's class, without the package that all have in common."""
    test: str
    took_s: float
    reason: str


def prepare(client: Client) -> list[str]:
    """The published jars, and our stand-ins before them on the class path of a JVM."""
    folder = HERE / "java" / "stock"
    make_java(client, folder, sorted(folder.rglob("*.java")), {"rocketmq": client.version})
    return [
        tool("java", "openjdk-17-jdk-headless"),
        "-Xmx1g",
        *BRIEF,
        "--add-opens=java.base/java.lang=ALL-UNNAMED",  # javassist defines classes by it
        f"-Duser.home={client.home}",
        "-cp",
        ":".join([f"{client.home}/classes", f"{client.home}/lib/*"]),
    ]


CLIENT = Client("stock-tests", "RocketMQ's integration tests", "5.5.0", prepare, features=())


def published(client: Client) -> list[str]:
    """The names of all test classes, without what they have in common."""
    jar = client.home / "lib" / f"rocketmq-test-{client.version}-tests.jar"
    with zipfile.ZipFile(jar) as archive:
        names = [name.replace("/", ".") for name in archive.namelist()]
    return sorted(
        name.removeprefix(PACKAGE).removesuffix(".class")
        for name in names
        if name.endswith(("IT.class", "Test.class", "BenchLmqStore.class"))
    )


def why_not(name: str) -> str | None:
    """Why a class or a test does not fit, if it does not."""
    return next((why for prefix, why in NOT_OURS if name.startswith(prefix)), None)


def run(
    argv: Sequence[str], namesrv_addr: str, names: Sequence[str], log: Path
) -> Iterator[Result]:
    """The results of these classes, as they come; the tests' own output goes to a file."""
    arguments = [f"-{PACKAGE}{name}" if why_not(name) else f"{PACKAGE}{name}" for name in names]
    command = [
        *argv[:1],
        f"-Dcluster.namesrv={namesrv_addr}",
        *argv[1:],
        "standins.StockTests",
        str(CLASS_TIMEOUT_S),
        *arguments,
    ]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                outcome, name, test, took_ms, reason = line.rstrip("\n").split("\t")
                name = name.removeprefix(PACKAGE)
                unfit = why_not(f"{name}.{test}")
                if unfit and outcome != "passed":
                    outcome, reason = "not applicable", unfit
                yield Result(outcome, name, test, int(took_ms) / 1000, reason)
        finally:
            process.kill()


def record(results: Sequence[Result]) -> dict[str, Any]:
    """The record of a run: tests by class and outcome, with their reasons."""
    classes: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for each in sorted(results, key=lambda each: (each.name, each.test)):
        classes[each.name][each.outcome][each.test] = each.reason
    made = datetime.now(UTC).date().isoformat()
    return {"made": made, "version": CLIENT.version, "classes": classes}


def later(kept: dict[str, Any], tested: dict[str, Any]) -> dict[str, Any]:
    """The kept record with the later results of some classes, and their day."""
    days = kept.get("later", {}) | dict.fromkeys(tested["classes"], tested["made"])
    classes = dict(sorted((kept["classes"] | tested["classes"]).items()))
    return kept | {"classes": classes, "later": days}


def table(results: Sequence[Result]) -> str:
    """A line for each class, and under it what failed."""
    lines = [f"{'passed':>6} {'failed':>6} {'n/a':>4} {'s':>6}"]
    by_class = defaultdict(list)
    for each in results:
        by_class[each.name].append(each)
    for name, tests in [*by_class.items(), ("all", list(results))]:
        passed, failed, other = (
            sum(each.outcome == outcome for each in tests)
            for outcome in ("passed", "failed", "not applicable")
        )
        took_s = sum(each.took_s for each in tests)
        lines.append(f"{passed:6} {failed:6} {other:4} {took_s:6.1f} {name}")
        if name != "all":
            lines += [
                f"{'':26}{each.test}: {each.outcome}: {each.reason}"
                for each in tests
                if each.reason and not why_not(name)  # whole classes need no line for each test
            ]
    return "\n".join(lines)


def take_both(cluster: Cluster) -> None:
    """Make client ports take TLS and plain text: some of these tests speak both at once."""
    for config in cluster.directory.glob("*/*.toml"):
        enforcing, permissive = (f'tls.server.mode = "{mode}"' for mode in MODES)
        text = config.read_text()
        assert enforcing in text
        config.write_text(text.replace(enforcing, permissive))


async def wait_until_serving(cluster: Cluster) -> None:
    await serving(cluster)


def main() -> int:
    """The command line; exit status 0 if nothing failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="parts of the classes' names; none: all")
    parser.add_argument("--nodes", type=int, default=3, help="of each broker group")
    parser.add_argument("--keep", action="store_true", help="keep what some classes showed, too")
    parser.add_argument("--log", type=Path, default=CACHE / "stock-tests.log")
    options = parser.parse_args()
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        argv = prepare(CLIENT)
    except Missing as reason:
        parser.error(str(reason))
    names = [
        name
        for name in published(CLIENT)
        if not options.parts or any(part in name for part in options.parts)
    ]
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        ports = free_ports(ports_needed(options.nodes, GROUPS, 1))
        layout = plan(ports, nodes=options.nodes, groups=GROUPS, namesrvs=1, tls=True)
        cluster = Cluster.create(Path(temporary) / "cluster", layout)
        take_both(cluster)
        with cluster.running():
            trio.run(wait_until_serving, cluster)
            for result in run(argv, layout.namesrv_addr, names, options.log):
                results.append(result)
                if not why_not(result.name):
                    told = f"{result.outcome}: {result.name}.{result.test}"
                    print(f"{result.took_s:6.1f} s {told}", flush=True)
    print(table(results))
    if not options.parts or options.keep:
        tested = record(results)
        if options.parts:
            tested = later(json.loads(STOCK_TESTS.read_text()), tested)
        STOCK_TESTS.write_text(json.dumps(tested, indent=1) + "\n")
        PAGE.write_text(with_stock_tests(PAGE.read_text(), tested))
    return any(each.outcome == "failed" for each in results)


if __name__ == "__main__":
    sys.exit(main())
