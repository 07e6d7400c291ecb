"""A broker that can't run says why on standard error, and exits with a status."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dledger.errors import (
    ConfigError,
    CorruptLog,
    DledgerError,
    Fenced,
    PeerPortClosed,
    WrittenByNewer,
)
from mqbroker import starting
from mqbroker.config import BrokerConfig

TAKEN = OSError(errno.EADDRINUSE, "Address already in use")
BROKEN = OSError(errno.EBADMSG, "Bad message", "/var/mq")
NO_FOLDER = OSError(errno.EACCES, "Permission denied", "/var/mq")


def fenced(number: int) -> Fenced:
    """An error as a ledger that gave up raises it, with the kernel's two causes deep."""
    inner, outer = Fenced("creating a segment failed"), Fenced("it failed")
    inner.__cause__ = OSError(number, "kernel's word")
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (Fenced("fsync failed"), 1, "fsync failed; repair the disk, then start the broker again"),
        (fenced(errno.EIO), 1, "it failed; repair the disk, then start the broker again"),
        (fenced(errno.ENOMEM), 1, "it failed; give it more memory (its limit, or the machine's)"),
        (fenced(errno.EMFILE), 1, "it failed; raise its limit of open files, then start the br"),
        (WrittenByNewer("a move"), 1, "one; upgrade this node; then start the broker again"),
        (PeerPortClosed("port 7 is taken"), 2, "port 7 is taken; stop what uses it, or change dLe"),
        (ConfigError("no"), 2, "mqbroker: no\n"),
        # The words are a stranger's: what is said follows from the error's type alone.
        (CorruptLog("upgrade this node"), 2, "mqbroker: upgrade this node\n"),
        (OSError(errno.EINVAL, "/var/mq"), 2, "can't listen on 127.0.0.1:10911: Invalid argument"),
        (OSError(errno.EIO, "the peer port"), 2, "store: Input/output error; the file system is d"),
        (TAKEN, 2, "can't listen on 127.0.0.1:10911: Address already in use; stop what uses it"),
        (BROKEN, 2, "/var/mq: Bad message; the file system is damaged: unmount it, check it"),
        (NO_FOLDER, 2, "/var/mq: Permission denied; make storePathRootDir"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_the_type_of_an_error_decides_what_the_operator_is_told_to_do(
    error: DledgerError | OSError,
    status: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A disk is to be repaired only where a disk is at fault."""

    async def run_broker(config: BrokerConfig) -> None:
        raise error

    config = tmp_path / "broker.toml"
    config.write_text("")
    monkeypatch.setattr(starting, "run_broker", run_broker)
    monkeypatch.setattr(starting, "configure_logging", lambda *_: None)
    assert starting.start(config, None, None) == status
    assert words in capfd.readouterr().err
