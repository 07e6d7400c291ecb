"""The cluster's secret: its file's rights, and servers that don't start without one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from dledger.program.config import load_config
from dledger.trust.secret import is_loopback, read_secret, require_secret
from mqbroker.config import BrokerConfig
from mqchaos.cluster.cluster import SECRET_FILE, Cluster
from mqchaos.cluster.layout import plan

TEXT = "-".join(("open", "sesame", "open", "sesame"))


def file_of(tmp_path: Path, text: str = TEXT, mode: int = 0o600) -> Path:
    path = tmp_path / "cluster.secret"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_secret_is_the_files_text(tmp_path: Path) -> None:
    """A secret is the file's text without the white space around it."""
    assert read_secret(file_of(tmp_path, f" {TEXT}\n\n")) == TEXT


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        (TEXT, 0o640, "mode 0640: .* chmod 600"),
        (TEXT, 0o604, "mode 0604"),
        ("short", 0o600, "5 characters, fewer than 16"),
        ("", 0o600, "0 characters"),
        ("\u00fc" * 20, 0o600, "is not text"),
    ],
)
def test_a_file_that_keeps_no_secret_is_refused(
    tmp_path: Path, text: str, mode: int, reason: str
) -> None:
    """The refusal says what is wrong and how to mend it, and never shows the secret."""
    with pytest.raises(ConfigError, match=reason) as refusal:
        read_secret(file_of(tmp_path, text, mode))
    assert TEXT not in str(refusal.value)


def test_a_file_that_is_not_there_is_refused_by_its_name(tmp_path: Path) -> None:
    """A missing file is an error, so that a misspelt path starts no server without a secret."""
    with pytest.raises(ConfigError, match=r"none can't be read: No such file"):
        read_secret(tmp_path / "none")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="is a pipe, not a file"):
        read_secret(tmp_path / "pipe")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_loopback_needs_no_secret(host: str) -> None:
    """Loopback, which only this machine reaches, needs no secret."""
    assert is_loopback(host)
    require_secret("the peer port", host, b"")
    require_secret("the peer port", host, b"short")


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.4", "192.168.1.1", "broker-1", "fe80::1"]
)
def test_any_other_address_needs_one(host: str) -> None:
    """Any other address, and a name, needs a secret, and one that can't be guessed."""
    with pytest.raises(ConfigError, match="there is no secret: .*head -c 32"):
        require_secret("the peer port", host, b"")
    with pytest.raises(ConfigError, match="it could be guessed"):
        require_secret("the peer port", host, b"short")
    require_secret("the peer port", host, TEXT.encode())


def test_a_broker_takes_its_secret_from_the_file(tmp_path: Path) -> None:
    """A broker's ledger gets the secret of the file; a second source of it is an error."""
    path = str(file_of(tmp_path))
    config = BrokerConfig(secret_file=path).with_secret()
    assert config.ledger().secret == TEXT.encode()
    with pytest.raises(ConfigError, match="both given"):
        BrokerConfig(secret_file=path, d_leger_secret=TEXT).with_secret()
    assert BrokerConfig(d_leger_secret=TEXT).with_secret().ledger().secret == TEXT.encode()


def test_a_new_cluster_has_a_secret_of_its_own_that_only_its_user_reads(tmp_path: Path) -> None:
    """Every broker's config names it, and no two clusters have the same."""
    clusters = [Cluster.create(tmp_path / name, plan(range(5000, 5009))) for name in ("a", "b")]
    secrets = set()
    for cluster in clusters:
        path = cluster.directory / SECRET_FILE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        for node in cluster.layout.nodes:
            file = cluster.folder(node.name) / "broker.toml"
            config = load_config(file, BrokerConfig).with_secret()
            secrets.add(config.d_leger_secret)
            assert config.d_leger_secret not in file.read_text()
    assert len(secrets) == 2


@pytest.mark.slow
def test_a_name_server_that_others_can_reach_does_not_start_without_one() -> None:
    """A name server beyond loopback without a secret ends with status 2 and one line."""
    command = [sys.executable, "-m", "mqnamesrv", "--host", "0.0.0.0", "-p", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "the name server on 0.0.0.0 can be reached from other machines" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "listens",
    ['dLegerPeers = "n0-0.0.0.0:40911"', 'bindAddress = "0.0.0.0"'],
    ids=["peers", "bind"],
)
def test_a_broker_that_others_can_reach_does_not_start_without_one(
    tmp_path: Path, listens: str
) -> None:
    """A broker beyond loopback without a secret ends with status 2 and one line."""
    config = tmp_path / "broker.toml"
    config.write_text(
        f'storePathRootDir = "{tmp_path}/store"\n{listens}\nbrokerIP1 = "127.0.0.1"\n'
    )
    command = [sys.executable, "-m", "mqbroker", "-c", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "the peer port on 0.0.0.0 can be reached from other machines" in ended.stderr
    assert 'secretFile = "/path/to/cluster.secret"' in ended.stderr
    assert "Traceback" not in ended.stderr
