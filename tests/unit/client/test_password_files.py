"""Files with a user's password."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from mqclient.connection.credentials import password_in
from mqclient.limits import PASSWORD_LINE_BYTES_MAX


def _file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    file = folder / "shop.password"
    file.write_bytes(content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize("content", [b"secret", b"secret\n", b"  secret \r\nsecond line\n"])
def test_a_password_is_the_first_line_of_its_file(tmp_path: Path, content: bytes) -> None:
    """A password is a file's first line, without white space around it."""
    assert password_in(_file(tmp_path, content)) == "secret"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    """A readable or writable file is refused with its mode and the command that mends it."""
    file = _file(tmp_path, b"secret\n", mode)
    with pytest.raises(ConfigError, match=f"{re.escape(str(file))} has mode 0{mode:o}.*chmod 600"):
        password_in(file)


def test_a_pipe_is_read_as_a_shell_hands_it_over(tmp_path: Path) -> None:
    """`--password-file <(command)` names a pipe, whose mode says nothing."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o644)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"secret\n",))
    writer.start()
    assert password_in(pipe) == "secret"
    writer.join()


def test_no_more_is_read_than_a_password_needs() -> None:
    """A device has no end."""
    assert len(password_in(Path("/dev/zero"))) == PASSWORD_LINE_BYTES_MAX


def test_what_can_not_be_read_is_named(tmp_path: Path) -> None:
    """A file that can't be read is named with the reason."""
    with pytest.raises(ConfigError, match="shop.password can't be read: No such file"):
        password_in(tmp_path / "shop.password")
    with pytest.raises(ConfigError, match="can't be read: Is a directory"):
        password_in(tmp_path)
    with pytest.raises(ConfigError, match="is not text in UTF-8"):
        password_in(_file(tmp_path, b"\xff\xfe\n"))
