"""Apache RocketMQ 4.9 in DLedger mode on this machine: a name server and three brokers.

Its jars come from Maven Central (`mvn`, Java 17), unmodified, into `.cache` of this clone. Heaps
and files are small, so that a laptop can do it. All on loopback; ports from --port on.

    python examples/attach/rocketmq.py up --dir /tmp/rocketmq       # prints what to type next
    mqchaos attach -n 127.0.0.1:19876 --hooks /tmp/rocketmq/hooks.toml --times 20 --dir /tmp/stock
    python examples/attach/rocketmq.py down --dir /tmp/rocketmq

`start NODE` is what the hooks call. With --client DIR, a folder with a stock client's jars and the
driver `Steady` (tests/conformance/clients.py builds it), that client is the load.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

VERSION = "4.9.7"
"""The newest 4.9 whose broker is on Maven Central."""
CACHE = Path(__file__).parents[2] / ".cache"
NODES = ("n0", "n1", "n2")
GROUP = "RaftNode00"
OPENED = [
    f"--add-{kind}=java.base/{package}=ALL-UNNAMED"
    for kind, package in (
        ("opens", "sun.nio.ch"),
        ("opens", "java.nio"),
        ("exports", "jdk.internal.ref"),
        ("opens", "jdk.internal.ref"),
    )
]
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>dledger.examples</groupId>
<artifactId>rocketmq</artifactId><version>1</version><dependencies>{}</dependencies><build><plugins>
<plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
<version>3.8.1</version></plugin></plugins></build></project>
"""
LOGBACK = """<configuration><appender name="o" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %c{0} %m%n</pattern></encoder></appender>
<root level="WARN"><appender-ref ref="o"/></root></configuration>
"""
DEPENDENCY = (
    "<dependency><groupId>org.apache.rocketmq</groupId><artifactId>rocketmq-{}</artifactId>"
    "<version>{}</version></dependency>"
)


def fetch(version: str = VERSION) -> Path:
    """The jars of a version, once."""
    home = CACHE / f"rocketmq-{version}"
    jars = home / "lib"
    if not (home / "done").exists():
        home.mkdir(parents=True, exist_ok=True)
        names = ("broker", "namesrv")
        wanted = "".join(DEPENDENCY.format(name, version) for name in names)
        (home / "pom.xml").write_text(POM.format(wanted))
        words = [
            "mvn",
            "-q",
            "-B",
            f"-Dmaven.repo.local={home / 'maven'}",
            "-DincludeScope=runtime",
        ]
        words += [f"-DoutputDirectory={jars}", "dependency:copy-dependencies"]
        subprocess.run(words, cwd=home, check=True, timeout=900)
        (home / "done").touch()
    return jars


def java(
    directory: Path, name: str, main: str, heap: str, *arguments: str, version: str = VERSION
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, and keep its process id."""
    home = directory / name
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for program in ("namesrv", "broker"):
        (home / "conf" / f"logback_{program}.xml").write_text(LOGBACK)
    words = [
        *("java", f"-Xms{heap}", f"-Xmx{heap}", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC"),
        *OPENED,
        *(f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", f"-Djava.io.tmpdir={home}"),
        *("-cp", f"{fetch(version)}/*", main, *arguments),
    ]
    with (home / "out.log").open("ab") as out:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    (home / "pid").write_text(str(process.pid))
    return process


def kill(directory: Path, name: str) -> None:
    """SIGKILL a server, if it runs."""
    try:
        os.kill(int((directory / name / "pid").read_text()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        return
    (directory / name / "pid").unlink()


def broker_port(port: int, node: str) -> int:
    """A node's port for clients; its port for members is 5,000 higher."""
    return port + 1_000 + 10 * NODES.index(node)


def start(directory: Path, node: str) -> None:
    """Start a broker on the files that it has."""
    port, home = json.loads((directory / "ports.json").read_text()), directory / node
    peers = [f"{each}-127.0.0.1:{broker_port(port, each) + 5_000}" for each in NODES]
    home.mkdir(parents=True, exist_ok=True)
    config = {
        "brokerClusterName": "RaftCluster",
        "brokerName": GROUP,
        "listenPort": broker_port(port, node),
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": f"127.0.0.1:{port}",
        "storePathRootDir": home / "store",
        "storePathCommitLog": home / "store" / "commitlog",
        "enableDLegerCommitLog": "true",
        "dLegerGroup": GROUP,
        "dLegerPeers": ";".join(peers),
        "dLegerSelfId": node,
        "sendMessageThreadPoolNums": 4,
        "mappedFileSizeCommitLog": 64 << 20,
        "mappedFileSizeConsumeQueue": 300_000,
        "autoCreateTopicEnable": "true",
    }
    (home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    main = "org.apache.rocketmq.broker.BrokerStartup"
    java(directory, node, main, "512m", "-c", str(home / "broker.conf"))


def hooks(directory: Path, port: int, client: Path | None) -> str:
    """The hooks file: SIGKILL by the process id, and a start."""
    script = f"{sys.executable} {Path(__file__).resolve()}"
    text = f'broker = "{GROUP}"\n'
    for node in NODES:
        text += (
            f'\n[nodes.{node}]\naddress = "127.0.0.1:{broker_port(port, node)}"\n'
            f'faults.kill.inject = "kill -9 $(cat {directory / node / "pid"})"\n'
            f'faults.kill.heal = "{script} start {node} --dir {directory}"\n'
        )
    return text + (workload(client, port) if client is not None else "")


def workload(client: Path, port: int) -> str:
    """A stock client as the load: two senders, a pause of 1 ms, routes asked for every second."""
    words = [
        *("java", "-Xmx256m", "-XX:+UseSerialGC", f"-Duser.home={client}", "-cp"),
        f"{client}/classes:{client}/lib/*",
        *("Steady", f"127.0.0.1:{port}", "stock", "Attached", "2", "1", "1000"),
    ]
    return f"\n[workload]\ncommand = '{' '.join(words)}'\n"


def wait_for(port: int) -> None:
    """Wait until something listens on `port`; end the program after a minute."""
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port} after a minute: see out.log")


def up(directory: Path, port: int, client: Path | None) -> None:
    """Start a name server and brokers on new files."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "namesrv").mkdir(parents=True)
    (directory / "ports.json").write_text(json.dumps(port))
    (directory / "namesrv" / "namesrv.conf").write_text(f"listenPort={port}\n")
    main = "org.apache.rocketmq.namesrv.NamesrvStartup"
    config = str(directory / "namesrv" / "namesrv.conf")
    java(directory, "namesrv", main, "256m", "-c", config)
    wait_for(port)
    for node in NODES:
        start(directory, node)
    for node in NODES:
        wait_for(broker_port(port, node))
    (directory / "hooks.toml").write_text(hooks(directory, port, client))
    print(
        f"mqchaos attach -n 127.0.0.1:{port} --hooks {directory / 'hooks.toml'} --times 20 "
        "--dir NEW-DIR"
    )


def main() -> None:
    """Run the command line: up, down, start NODE, kill NODE."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("do", choices=("up", "down", "start", "kill"))
    parser.add_argument("node", nargs="?", choices=NODES)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--port", type=int, default=19_876)
    parser.add_argument("--client", type=Path)
    chosen = parser.parse_args()
    directory = chosen.dir.resolve()
    if chosen.do == "up":
        up(directory, chosen.port, chosen.client)
    elif chosen.do == "down":
        for name in (*NODES, "namesrv"):
            kill(directory, name)
    elif chosen.node is None:
        parser.error(f"{chosen.do} needs a node")
    else:
        {"start": start, "kill": kill}[chosen.do](directory, chosen.node)


if __name__ == "__main__":
    main()
