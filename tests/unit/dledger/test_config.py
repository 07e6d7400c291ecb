"""Config files: which are read, and the errors of the others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dledger.errors import ConfigError
from dledger.program.config import load_config


class Sample(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    store_path_root_dir: str
    listen_port: int = 10911
    flush_disk_type: str = "SYNC_FLUSH"
    auto_create_topic_enable: bool = True
    heartbeat_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.listen_port < 65536:
            raise ValueError(f"listenPort = {self.listen_port}: no port")


def load(folder: Path, text: str) -> Sample:
    path = folder / "broker.toml"
    path.write_text(text)
    return load_config(path, Sample)


def test_keys_are_camel_case_and_have_defaults(tmp_path: Path) -> None:
    """Keys are RocketMQ's camel case, and have defaults."""
    text = (
        'storePathRootDir = "/data"\nlistenPort = 1\nautoCreateTopicEnable = false\nheartbeatS = 2'
    )
    assert load(tmp_path, text) == Sample(
        "/data", listen_port=1, auto_create_topic_enable=False, heartbeat_s=2.0
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "flushDiskTyp = 'ASYNC_FLUSH'",
            r"unknown key 'flushDiskTyp'; did you mean flushDiskType\?",
        ),
        ("listen_port = 1", r"unknown key 'listen_port'; did you mean listenPort\?"),
        ("zzz = 1", r"unknown key 'zzz'$"),
        ("storePathRootDir = 'd'\nlistenPort = '1'", "listenPort = '1': Expected `int`, got `str`"),
        ("storePathRootDir = 'd'\nlistenPort = 99999", "listenPort = 99999: no port"),
        ("listenPort = 1", "the key 'storePathRootDir' is required"),
        ("listenPort = ", "not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, text: str, reason: str) -> None:
    """A wrong key is named with its file: ignored it would cost messages."""
    with pytest.raises(ConfigError, match=rf"broker\.toml: {reason}"):
        load(tmp_path, text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing file is an error with its name and the system's reason."""
    with pytest.raises(ConfigError, match=r"nowhere\.toml: can't be read: No such file"):
        load_config(tmp_path / "nowhere.toml", Sample)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """A file that is not text is not valid TOML."""
    path = tmp_path / "broker.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_config(path, Sample)


class Dotted(msgspec.Struct, frozen=True):
    mode: str = msgspec.field(name="tls.server.mode", default="disabled")
    depth: int = msgspec.field(name="tls.depth", default=0)


@pytest.mark.parametrize(
    "text",
    [
        'tls.server.mode = "enforcing"\ntls.depth = 2',
        '[tls]\ndepth = 2\n[tls.server]\nmode = "enforcing"',
        '"tls.server.mode" = "enforcing"\n"tls.depth" = 2',
    ],
)
def test_a_key_with_dots_is_one_key_however_toml_has_it(text: str, tmp_path: Path) -> None:
    """RocketMQ's keys for TLS have dots; to TOML these are tables."""
    path = tmp_path / "broker.toml"
    path.write_text(text)

    assert load_config(path, Dotted) == Dotted("enforcing", 2)


def test_an_unknown_key_with_dots_is_named_whole(tmp_path: Path) -> None:
    """An unknown key with dots is named with the known one that is like it."""
    path = tmp_path / "broker.toml"
    path.write_text('tls.server.mod = "enforcing"')

    with pytest.raises(ConfigError, match=r"'tls.server.mod'; did you mean tls.server.mode\?"):
        load_config(path, Dotted)
