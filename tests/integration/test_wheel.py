"""The wheel outside of the checkout: every command runs, and no package hides another."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from mqlocal import local_cluster_in_thread

ROOT = Path(__file__).parents[2]
COMMANDS = ("mqnamesrv", "mqbroker", "mqadmin", "mqcluster", "mqchaos", "mqaudit")
PACKAGES = ("dledger", "mqbroker", "mqnamesrv", "mqclient", "mqchaos", "mqspark", "mqlocal")

# Modules of the user's own, called as some folders of ours are.
THEIRS = {
    "client.py": 'NAME = "my own client"\n',
    "chaos/__init__.py": 'NAME = "my own chaos"\n',
    "spark.py": 'NAME = "my own spark"\n',
    "broker.py": 'NAME = "my own broker"\n',
}
PROGRAM = """\
import broker
import chaos
import client
import spark
import trio

import dledger
import mqclient
from dledger import LedgerConfig, open_ledger
from mqclient import Consumer, Message, Producer, SendResult, blocking


async def order(namesrv: str, text: str) -> SendResult:
    async with Producer(namesrv, group="PG") as producer:
        return await producer.send(Message("Orders", text.encode(), tags="new"))


def read(namesrv: str) -> list[bytes]:
    with blocking.Consumer(namesrv, group="CG", subscriptions={"Orders": "*"}) as consumer:
        return [message.body for message in consumer.poll()]


print(broker.NAME, chaos.NAME, client.NAME, spark.NAME, sep=", ")
print(Consumer.__name__, LedgerConfig.__name__, open_ledger.__name__, trio.__name__)
print(mqclient.__version__ == dledger.__version__)
"""
TEST = """\
from mqclient import Message
from mqlocal import LocalCluster


async def test_an_order_is_stored(mq_cluster: LocalCluster, autojump_clock: object) -> None:
    async with mq_cluster.producer("PG") as producer:
        await mq_cluster.kill("leader")
        assert (await producer.send(Message("Orders", b"x"))).queue_offset == 0
"""


SENDS = """\
import sys
import mqclient
from mqclient.blocking import Consumer, Producer

[getattr(mqclient, name) for name in mqclient.__all__]
namesrv = sys.argv[1]
with Producer(namesrv, compression="zstd", compress_from_bytes=10) as producer:
    producer.send(mqclient.Message("T", b"one" * 99, keys="k"))
    producer.send_many("T", [b"%d" % number for number in range(2000)])
with Consumer(namesrv, "G", {"T": "*"}) as consumer:
    count = 0
    while polled := consumer.poll(timeout_s=3):
        count += len(polled)
    assert count == 2001, count
try:
    mqclient.RangeReader(namesrv)
except mqclient.DledgerError as error:
    print(error)
print(sorted({name.partition(".")[0] for name in sys.modules} & set(sys.argv[2:])))
"""
NOT_FOR_CLIENTS = (
    "numpy",
    "isal",
    "rich",
    "cyclopts",
    "structlog",
    "pysyncobj",
    "msgpack",
    "blake3",
    "h11",
)


@dataclass(frozen=True)
class Away:
    """An environment with the wheel, and a folder of a user's program."""

    bin: Path
    home: Path

    def run(self, *argv: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, cwd=self.home, capture_output=True, text=True, timeout=120, check=False, env={}
        )


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Away:
    """A clean environment with this one's other packages, and the wheel."""
    folder = tmp_path_factory.mktemp("away")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = folder.glob("dledger-*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=60)
    python = venv / "bin" / "python"
    install = [*pip, "--python", python, "install", "--no-deps", wheel]
    subprocess.run(install, check=True, timeout=60)
    # A line of a .pth file: the .pth files of that folder, which name the checkout, are not read.
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "theirs.pth").write_text(sysconfig.get_path("purelib") + "\n")
    home = folder / "program"
    for name, text in THEIRS.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    (home / "main.py").write_text(PROGRAM)
    return Away(venv / "bin", home)


@pytest.fixture(scope="module")
def light(away: Away, tmp_path_factory: pytest.TempPathFactory) -> Away:
    """An environment with the wheel and what it needs without an extra."""
    folder = tmp_path_factory.mktemp("light")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=60)
    (site,) = venv.glob("lib/python*/site-packages")
    for package in PACKAGES:
        (where,) = away.bin.parent.glob(f"lib/python*/site-packages/{package}")
        (site / package).symlink_to(where)
    for name in needed_by("dledger"):
        for file in distribution(name).files or []:
            top = Path(file.parts[0])
            target = Path(str(distribution(name).locate_file(top)))
            if ".." not in file.parts and not (site / top).exists():
                (site / top).symlink_to(target)
    return Away(venv / "bin", folder)


def needed_by(name: str) -> set[str]:
    """Distributions that one needs without an extra, and those that they need."""
    found: set[str] = set()
    for required in map(Requirement, distribution(name).requires or []):
        if required.marker is None or required.marker.evaluate({"extra": ""}):
            found |= {required.name, *needed_by(required.name)}
    return found


def test_a_client_needs_few_packages(light: Away) -> None:
    """A client's few packages send and receive, compressed and many, and import no server."""
    with local_cluster_in_thread(replicas=1) as cluster:
        (light.home / "sends.py").write_text(SENDS)
        python = light.bin / "python"
        done = light.run(python, "sends.py", cluster.namesrv_addr, *NOT_FOR_CLIENTS)

    assert done.stderr == ""
    asked, imported = done.stdout.splitlines()
    assert "pip install 'dledger[bulk]'" in asked
    assert imported == "[]"


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("mqbroker.__main__", "server"),
        ("mqnamesrv.__main__", "server"),
        ("mqclient.commands.__main__", "tools"),
        ("mqspark.__main__", "spark"),
    ],
)
def test_a_command_says_what_to_install(light: Away, module: str, extra: str) -> None:
    """A command without its extra says what to install, without a traceback."""
    call = f"from {module} import main; main()"
    done = light.run(light.bin / "python", "-c", call)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"mq\w+: .*pip install 'dledger\[{extra}\]'.*\n", done.stderr)


def test_a_cluster_in_a_test_says_what_to_install(light: Away) -> None:
    """A cluster in a test without its extra says what to install."""
    done = light.run(light.bin / "python", "-c", "from mqlocal import local_cluster")

    assert "ConfigError: a cluster in a test needs" in done.stderr
    assert "dledger[server]" in done.stderr


def test_a_program_with_names_like_our_folders_uses_the_wheel(away: Away) -> None:
    """A program's own `client.py` and `chaos/` are imported, beside our packages."""
    done = away.run(away.bin / "python", "main.py")

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "my own broker, my own chaos, my own client, my own spark",
        "Consumer LedgerConfig open_ledger trio",
        "True",
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_wheel_has_the_package_with_its_types(away: Away, package: str) -> None:
    """A package comes from the wheel, with the mark that type checkers look for."""
    where = f"import {package}; print({package}.__file__)"
    home = Path(away.run(away.bin / "python", "-c", where).stdout.strip()).parent

    assert home.name == package
    assert home.is_relative_to(away.bin.parent)
    assert (home / "py.typed").exists()


def test_test_kits_are_not_in_the_wheel(away: Away) -> None:
    """The wheel has virtual time and the ledger in memory, and no other test kit."""
    program = (
        "import dledger, pathlib\n"
        "root = pathlib.Path(dledger.__file__).parents[1]\n"
        f"for package in {PACKAGES}:\n"
        "    for file in sorted(root.glob(f'{package}/**/testing/**/*.py')):\n"
        "        print(file.relative_to(root))\n"
    )
    done = away.run(away.bin / "python", "-c", program)

    kept = ("__init__", "local", "virtual")
    assert done.stdout.split() == [f"dledger/testing/{name}.py" for name in kept], done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_wheel_starts(away: Away, command: str) -> None:
    """Commands of the wheel start beside files that are called like our folders."""
    done = away.run(away.bin / command, "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert command in done.stdout


def test_pytest_finds_the_fixtures_of_the_wheel(away: Away) -> None:
    """A test has the fixtures without naming them."""
    (away.home / "test_theirs.py").write_text(TEST)
    (away.home / "pytest.ini").write_text("[pytest]\ntrio_mode = true\n")
    done = away.run(away.bin / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider")

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_users_program_passes_strict_types(away: Away) -> None:
    """`mypy --strict` reads our types from the wheel."""
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", away.home / ".mypy"]
    done = away.run(*mypy, "--python-executable", away.bin / "python", "main.py")

    assert done.stdout == "Success: no issues found in 1 source file\n", done.stderr


@pytest.mark.long
def test_it_is_installed_from_a_git_url(light: Away, tmp_path: Path) -> None:
    """An install from a git URL, as in docs/how-to/installing.md, sends and names what lacks."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=60)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    # With a host, as all URLs of requirements have: pips without PEP 508's exception want one.
    url = f"dledger @ git+file://localhost{ROOT}"
    # The build backend is this environment's, as nothing is fetched from an index.
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, url]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = tmp_path.glob("dledger-*.whl")
    install = [*pip, "--python", venv / "bin" / "python", "install", "--no-deps", wheel]
    subprocess.run(install, check=True, timeout=60)
    (site,) = venv.glob("lib/python*/site-packages")
    (others,) = light.bin.parent.glob("lib/python*/site-packages")
    for package in others.iterdir():
        if not (site / package.name).exists():
            (site / package.name).symlink_to(package.resolve())
    git = Away(venv / "bin", tmp_path)
    with local_cluster_in_thread(replicas=1) as cluster:
        (git.home / "sends.py").write_text(SENDS)
        done = git.run(git.bin / "python", "sends.py", cluster.namesrv_addr, *NOT_FOR_CLIENTS)

    assert done.stderr == ""
    assert "pip install 'dledger[bulk]'" in done.stdout
    asks = git.run(git.bin / "mqadmin", "clusterList")
    assert (asks.returncode, asks.stdout) == (2, "")
    assert "pip install 'dledger[tools]'" in asks.stderr
