"""Contexts are made again when their files change.

New ones are made first. If a file is missing, a key does not fit its certificate or the certificate
has expired, the present ones stay, and the reason is logged once; the files are looked at again
until they are mended. So a certificate and its key may be replaced one after the other, and
connections that stand are not touched. While authorities change, their file holds both.
"""

from __future__ import annotations

from collections.abc import Callable

from dledger.errors import ConfigError
from dledger.limits import DAY_S, TLS_EXPIRES_SOON_S
from dledger.observe import get_logger
from dledger.tls.files import own_validity, problem_of
from dledger.tls.options import Files
from dledger.world import steady_s, unix_ms

_log = get_logger(__name__)

_Stamps = tuple[tuple[int, int, int], ...]


class Reloading:
    """The result of `make` for files, kept as long as no newer version of them can be used. Raises
    ConfigError."""

    def __init__(self, files: Files, make: Callable[[], None]) -> None:
        self._files = files
        self._make = make
        #: Why the files as they are now can't be used; empty if they are.
        self.problem = ""
        self._warned_at_s = float("-inf")
        self._stamps = self._now()
        make()

    def look(self) -> None:
        """Take over files that have changed, if they can be used."""
        try:
            stamps = self._now()
            if stamps == self._stamps and not self.problem:
                return
            self._refuse_outdated()
            self._make()
        except ConfigError as error:
            if str(error) != self.problem:
                self.problem = str(error)
                _log.error(
                    "certificates not taken over",
                    reason=self.problem,
                    remedy="those that were in use stay until the files are mended",
                )
            return
        self.problem, self._stamps = "", stamps
        _log.info("certificates taken over", files=", ".join(map(str, self._files.paths)))

    def warn_of_end(self) -> None:
        """Log once a day that the certificate ends soon, or is not valid now."""
        if not self._files.certificate or steady_s() - self._warned_at_s < DAY_S:
            return
        try:
            validity = own_validity(self._files)
        except ConfigError:
            return  # `look` has said so
        problem = problem_of(validity)
        if problem is not None:
            self._warned_at_s = steady_s()
            reason = f"{self._files.names.certificate} {self._files.certificate} {problem}"
            _log.error(
                "certificate not valid",
                reason=reason,
                remedy="others refuse this server until the files are replaced: they are taken "
                "over without a restart",
            )
            return
        left_s = float("inf") if validity is None else validity.ends_s - unix_ms() / 1000
        if left_s < TLS_EXPIRES_SOON_S:
            self._warned_at_s = steady_s()
            _log.warning(
                "certificate ends",
                certificate=self._files.certificate,
                days_left=int(left_s // DAY_S),
                remedy="renew it and replace the files: they are taken over without a restart",
            )

    def _now(self) -> _Stamps:
        stamps = []
        for name, path in self._files.named:
            try:
                found = path.stat()
            except OSError as error:
                raise ConfigError(f"{name} {path} can't be read: {error.strerror}") from error
            stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
        return tuple(stamps)

    def _refuse_outdated(self) -> None:
        if self._files.certificate:
            problem = problem_of(own_validity(self._files))
            if problem is not None:
                name = self._files.names.certificate
                raise ConfigError(f"{name} {self._files.certificate} {problem}")
