"""The cluster's secret: where it is kept, and when there must be one.

Brokers of a group prove with it to each other on their peer ports, and to name servers.
It is random text in a file that only its user can read.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path

from dledger.errors import ConfigError
from dledger.files import check_private, check_regular
from dledger.limits import SECRET_CHARACTERS_MIN
from dledger.observe import get_logger
from dledger.trust.rolling import Secrets, parse, shown

HOW_TO_MAKE_ONE = (
    "(umask 077; head -c 32 /dev/urandom | base64 > cluster.secret), copy that file to every "
    'server of the cluster, and name it in each config: secretFile = "/path/to/cluster.secret"'
)

_log = get_logger(__name__)
_Stamp = tuple[int, int, int]


def read_secret(path: Path) -> str:
    """The secret in a file, without the white space around it. Raises ConfigError."""
    try:
        mode = path.stat().st_mode
        check_regular(f"secretFile {path}", mode, f"make one: {HOW_TO_MAKE_ONE}")
        secret = path.read_text("ascii").strip()
    except OSError as error:
        raise ConfigError(f"secretFile {path} can't be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(
            f"secretFile {path} is not text; make another: {HOW_TO_MAKE_ONE}"
        ) from None
    check_private(f"secretFile {path}", path, mode)
    if len(secret) < SECRET_CHARACTERS_MIN:
        raise ConfigError(
            f"secretFile {path} has {len(secret)} characters, fewer than {SECRET_CHARACTERS_MIN}; "
            f"make another: {HOW_TO_MAKE_ONE}"
        )
    return secret


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """The secrets in a file, the first one first. Raises ConfigError."""
    return parse(read_secret(path), f"secretFile {path}")


class SecretFile:
    """Looks after a server's secretFile, whose secrets are valid until others take their place."""

    def __init__(self, path: Path, secrets: Secrets) -> None:
        self._path = path
        self._secrets = secrets
        self._seen: _Stamp | None = None
        #: Why the secrets in the file are not those that are valid; empty if they are.
        self.problem = ""

    def wanted(self) -> tuple[bytes, ...] | None:
        """Other secrets than the valid ones that the file now has; None if it has none. A file
        that can't be used is a problem, and changes nothing."""
        try:
            found = self._path.stat()
            stamp = found.st_ino, found.st_mtime_ns, found.st_size
            wanted = None if stamp == self._seen else read_secrets(self._path)
        except (OSError, ConfigError) as error:
            self.refuse(str(error))
            return None
        if wanted is None:
            return None
        if wanted != self._secrets.valid:
            return wanted
        self._seen, self.problem = stamp, ""
        return None

    def refuse(self, reason: str) -> None:
        """Keep the valid ones; the file is looked at again. A reason is logged once."""
        if reason != self.problem:
            self.problem = reason
            remedy = "those that were valid stay; the file is looked at again and again"
            _log.error("secrets not taken over", reason=reason, remedy=remedy)

    def take(self, wanted: tuple[bytes, ...]) -> None:
        """Replace the secrets that are valid."""
        self._secrets.valid, self.problem = wanted, ""
        _log.info("secrets taken over", first=shown(wanted[0]), valid=len(wanted))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def require_secret(what: str, host: str, secret: bytes) -> None:
    """Raise ConfigError, with a remedy, if others can reach a port of ours that needs a secret."""
    if not secret and not is_loopback(host):
        raise ConfigError(
            f"{what} on {host} can be reached from other machines, and there is no secret: anyone "
            f"who connects could take part. Make one: {HOW_TO_MAKE_ONE}"
        )
    if not is_loopback(host) and len(secret) < SECRET_CHARACTERS_MIN:
        raise ConfigError(
            f"{what} on {host} can be reached from other machines, and the secret has fewer than "
            f"{SECRET_CHARACTERS_MIN} characters: it could be guessed. Make one: {HOW_TO_MAKE_ONE}"
        )
