"""Commands with nonsense as arguments: a status, one line that says what is wrong, no traceback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mqbroker import mqbroker
from mqchaos import mqchaos, mqcluster
from mqclient.commands import mqadmin
from mqnamesrv import mqnamesrv

Main = Callable[[Sequence[str] | None], None]

DEEP = b"[" * 100_000
FILES: dict[str, bytes] = {
    "empty": b"",
    "text": b"hello\n",
    "bytes": bytes(range(256)),
    "deep": DEEP,
    "deep.toml": b"a = " + DEEP,
    "deep.json": b'{"broker_name":' + DEEP,
    "huge.json": b'{"segment_bytes":' + b"9" * 5000 + b',"broker_name":"b","node_id":"n"}',
    "null.json": b"null",
    "surrogate.json": b'{"broker_name":"\\ud800","node_id":"n","segment_bytes":4096}',
    "nan.toml": b"listenPort = nan\n",
    "port.toml": b"listenPort = 40000\nnamesrvAddr = ''\n",
    "ports.toml": b"listenPort = 65536\n",
    "negative.toml": b"listenPort = -30000\n",
    "huge.toml": b"listenPort = " + b"9" * 400 + b"\n",
    "levels.toml": b"messageDelayLevel = '99999999999999999999d'\n",
    "secret.toml": b"dLegerPeers = 'n0-host:port'\n",
    "quoted.toml": b'storePathRootDir = "/proc/1/\\u0000"\n',
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of files that are not what a command wants, and of names that lead nowhere."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    for name in ("deep.json", "huge.json", "null.json", "bytes", "empty"):
        folder = tmp_path / f"replica-{name}"
        folder.mkdir()
        (folder / "replica.json").write_bytes(FILES[name])
        (folder / "cluster.json").write_bytes(FILES[name])
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "directory").mkdir()
    (tmp_path / "replica-directory").mkdir()
    (tmp_path / "replica-directory" / "replica.json").mkdir()
    (tmp_path / "replica-loop").mkdir()
    (tmp_path / "replica-loop" / "replica.json").symlink_to(
        tmp_path / "replica-loop" / "replica.json"
    )
    return tmp_path


CORES = """
import ctypes, importlib, resource, sys
tool = importlib.import_module(sys.argv[1])

resource.setrlimit(resource.RLIMIT_CORE, resource.getrlimit(resource.RLIMIT_CORE)[1:] * 2)
before = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
sys.argv[1:] = ["--version"]
try:
    tool.main()
finally:
    print(before, ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
@pytest.mark.parametrize(
    ("tool", "dumpable"),
    [("mqclient.commands.mqadmin", 0), ("mqchaos.mqcluster", 1), ("mqchaos.mqchaos", 1)],
)
def test_a_crash_of_a_tool_leaves_no_core_dump(tool: str, dumpable: int) -> None:
    """A core dump would hold passwords, so none is made; `mqadmin` may not be dumped at all.

    The other commands need their files in /proc.
    """
    done = subprocess.run(
        [sys.executable, "-c", CORES, tool],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == f"1 {dumpable} (0, 0)", done.stderr


NAMES = [
    *FILES,
    *("loop", "loop/below", "directory", "missing", "text/below", "x" * 300, "a\x00b"),
    *(f"replica-{name}" for name in ("deep.json", "huge.json", "null.json")),
    *("replica-bytes", "replica-empty", "replica-directory", "replica-loop"),
]

BY_FILE: list[tuple[str, Main, list[str]]] = [
    ("verifyLog", mqadmin.main, ["verifyLog", "{}"]),
    ("verifyLog --dump", mqadmin.main, ["verifyLog", "{}", "--dump", "5"]),
    ("mqbroker -c", mqbroker.main, ["-c", "{}"]),
    ("mqnamesrv -c", mqnamesrv.main, ["-c", "{}"]),
    ("mqcluster status", mqcluster.main, ["status", "{}"]),
    ("mqcluster kill", mqcluster.main, ["kill", "x", "--dir", "{}"]),
    ("mqcluster down", mqcluster.main, ["down", "--dir", "{}"]),
    ("mqchaos run", mqchaos.main, ["run", "--scenario", "none", "--dir", "{}"]),
]

ARGUMENTS: list[tuple[Main, list[str]]] = [
    *(
        (main, arguments)
        for main in (mqadmin.main, mqbroker.main, mqnamesrv.main, mqcluster.main, mqchaos.main)
        for arguments in (
            ["--nonsense"],
            ["nonsense"],
            ["--", "\x00"],
            ["--config", "\udcff"],
            ["ü" * 5000],
            ["-"],
            ["--log-format", "x"],
            ["--dir"],
        )
    ),
    *(
        (mqadmin.main, [command, *arguments])
        for command in sorted(mqadmin.COMMANDS)
        for arguments in (
            ["--namesrv", "127.0.0.1:²"],
            ["--timeout", "nan"],
            ["\udcff"],
        )
    ),
    (mqnamesrv.main, ["--port", "65536"]),
    (mqnamesrv.main, ["--port", "-1"]),
    (mqnamesrv.main, ["--port", "9" * 400]),
    (mqnamesrv.main, ["--host", "no such host \x00"]),
    (mqbroker.main, ["--namesrv", "127.0.0.1:99999"]),
    (mqbroker.main, ["--namesrv", "²:²"]),
    (mqcluster.main, ["up", "--brokers", "9" * 30]),
    (mqcluster.main, ["up", "--brokers", "-1"]),
    (mqchaos.main, ["run", "--kills", "9" * 400]),
]


def refused(main: Main, arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that refuses its arguments."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capfd.readouterr().err
    assert ended.value.code in (1, 2), (ended.value.code, said)
    assert "Traceback" not in said
    lines = [line for line in said.splitlines() if line]
    assert len(lines) == 1, said
    return lines[0]


@pytest.mark.parametrize(
    ("main", "arguments"), [row[1:] for row in BY_FILE], ids=[row[0] for row in BY_FILE]
)
def test_no_file_makes_a_command_fall(
    main: Main,
    arguments: list[str],
    files: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of the wrong kind, nested too deeply, or unreadable, is a command's plain error."""
    monkeypatch.chdir(files)
    for name in NAMES:
        if main is mqbroker.main and name == "empty":
            continue  # a config with nothing but defaults
        if main is mqnamesrv.main and name == "empty":
            continue
        given = [argument.replace("{}", str(files / name)) for argument in arguments]
        refused(main, given, capfd)


@pytest.mark.parametrize(
    ("main", "arguments"),
    ARGUMENTS,
    ids=[ascii(row[1])[-60:] for row in ARGUMENTS],
)
def test_no_argument_makes_a_command_fall(
    main: Main,
    arguments: list[str],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Arguments that are unknown, of a wrong kind, too large or no text are refused."""
    monkeypatch.chdir(tmp_path)
    refused(main, arguments, capfd)


def test_a_port_beyond_the_last_is_told_by_its_keys(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The peer port is the client port + 30000 by default, and its error names both keys."""
    config = tmp_path / "broker.toml"
    config.write_text("listenPort = 40000\n")
    said = refused(mqbroker.main, ["-c", str(config)], capfd)
    assert "dLegerPeers" in said
    assert "listenPort 40000" in said


def test_a_history_that_is_nested_too_deeply_is_no_history(tmp_path: Path) -> None:
    """The judge reads the first line of each file before it starts."""
    pytest.importorskip("pyspark")
    from mqspark.history.files import _meta_of  # noqa: PLC0415

    history = tmp_path / "events.jsonl"
    history.write_bytes(b'{"kind":"meta","a":' + b"[" * 60_000 + b"\n")
    assert _meta_of(history) == {}
