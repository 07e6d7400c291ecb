"""An archive of facts and logs for somebody else to look at, and reading one that anybody made.

It is a gzipped tar of a few plain files: `facts.json`, what was asked of the servers (configs
without secrets, figures, the state of Raft), and below `logs/` the ends of logs that were named.

Reading takes nothing for granted: the file must be a regular one, what it unpacks to is bounded,
no file is ever written or followed by the names in it, and of the facts each value must have its
type.
"""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from dledger.errors import BadInput, ConfigError
from dledger.files import check_regular
from mqclient import limits
from mqclient.admin.doctor.facts import Facts

FACTS: Final = "facts.json"
_MODE: Final = 0o600


def write_bundle(path: Path, facts: Facts, logs: Mapping[str, bytes]) -> None:
    """Write an archive that only its user may read. ConfigError if the file exists already, or
    can't be written."""
    encoded = msgspec.json.format(msgspec.json.encode(facts), indent=1)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(path, flags, _MODE)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz") as archive,
        ):
            for name, content in ((FACTS, encoded), *logs.items()):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode, entry.mtime = len(content), _MODE, facts.asked_ms // 1000
                archive.addfile(entry, io.BytesIO(content))
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ConfigError(f"{path}: {error.strerror}") from error


def ends_of_logs(paths: Sequence[Path]) -> dict[str, bytes]:
    """The ends of log files, by their names in the archive. ConfigError."""
    found = {}
    for number, path in enumerate(paths):
        with _opened(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limits.BUNDLE_LOG_BYTES))
            found[f"logs/{number}-{path.name}"] = file.read(limits.BUNDLE_LOG_BYTES)
    return found


def read_bundle(path: Path) -> Facts:
    """The facts in an archive. Raises ConfigError if there is none, BadInput for what is not one
    of ours."""
    with _opened(path) as file:
        try:
            with gzip.GzipFile(fileobj=file) as unpacked:
                content = unpacked.read(limits.BUNDLE_BYTES_MAX + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(f"{path} is not a gzipped archive: {error}") from error
    if len(content) > limits.BUNDLE_BYTES_MAX:
        raise BadInput(f"{path} unpacks to more than {limits.BUNDLE_BYTES_MAX} bytes")
    return _facts_in(path, content)


def _facts_in(path: Path, content: bytes) -> Facts:
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for _ in range(limits.BUNDLE_FILES_MAX):
                entry = archive.next()
                if entry is None:
                    break
                if entry.name == FACTS and entry.isreg():
                    file = archive.extractfile(entry)
                    assert file is not None, "a regular file"
                    return _bounded(msgspec.json.decode(file.read(), type=Facts))
    # `tarfile` meets nonsense with errors of many kinds.
    except (tarfile.TarError, OSError, ValueError, EOFError, RecursionError, KeyError) as error:
        raise BadInput(f"{path} is not an archive of mqadmin bundle: {error}") from error
    raise BadInput(f"{path} is not an archive of mqadmin bundle: it has no {FACTS}")


def _bounded(facts: Facts) -> Facts:
    """The facts, if no cluster is too large for them. Raises ValueError."""
    sizes = Counter((each.cluster, each.broker_name) for each in facts.brokers)
    if len(sizes) > limits.GROUPS_MAX or max(sizes.values(), default=0) > limits.MEMBERS_MAX:
        raise ValueError("it names more brokers than a cluster may have")
    if not 0 <= facts.asked_ms <= limits.BUNDLE_TIME_MS_MAX:
        raise ValueError("it was made at no possible time")
    return facts


def _opened(path: Path) -> BinaryIO:
    """A regular file; a pipe or a device could be waited for without end. ConfigError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    try:
        check_regular(path, os.fstat(descriptor).st_mode, "name a bundle")
    except ConfigError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")
