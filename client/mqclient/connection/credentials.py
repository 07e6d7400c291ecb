"""Credentials of a client: a user's name and secret, or the cluster's secret.

Our servers give each connection a nonce, and every request over it is stamped and signed
(`dledger.trust.signatures`), so that none can be sent again. RocketMQ's own servers are sent
their own signature.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dledger.errors import BadInput, ConfigError
from dledger.files import check_private
from dledger.limits import SECRET_LOOK_S
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import SignOnResponseHeader, decode_header
from dledger.trust.rolling import Secrets
from dledger.trust.secret import SecretFile
from dledger.trust.signatures import CLUSTER_USER, Key, Stamp, check_name
from dledger.world import steady_s, unix_ms
from mqclient.limits import PASSWORD_LINE_BYTES_MAX

Sign = Callable[[Command], None]


def password_in(file: Path) -> str:
    """The password in a file's first line, without the white space around it. The file is for its
    user alone, or a pipe. Raises ConfigError."""
    try:
        with file.open("rb") as opened:
            mode, line = os.fstat(opened.fileno()).st_mode, opened.readline(PASSWORD_LINE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"the password's file {file} can't be read: {error.strerror}") from error
    check_private(f"the password's file {file}", file, mode)
    try:
        return line.decode().strip()
    except UnicodeDecodeError:
        raise ConfigError(f"the password's file {file} is not text in UTF-8") from None


class Credentials:
    """A user, and the key made of its secret. The secret itself is not kept. That of the
    cluster is read again when its file has changed."""

    def __init__(self, user: str, key: Key, file: SecretFile | None = None) -> None:
        self.user = user
        self._key = key
        self._file = file
        self._looked_at_s = steady_s()

    def __repr__(self) -> str:
        return f"<Credentials of {self.user}>"

    @classmethod
    def of(cls, user: str | None, secret: str | None) -> Credentials | None:
        """Credentials of a user, or without a user of the cluster, whose secret it is then. None if
        neither is given. Raises BadInput."""
        if secret is None:
            if user is not None:
                raise BadInput(f"user={user!r} without a secret: give secret=, the user's password")
            return None
        if user is None:
            return cls(CLUSTER_USER, Key.of_cluster(secret.strip().encode()))
        check_name(user)
        return cls(user, Key(secret))

    @classmethod
    def of_file(cls, secret_file: Path, secrets: Secrets) -> Credentials:
        """Credentials by the cluster's secret: the first one that was read from a file. They
        follow the file."""
        key = Key.of_cluster(secrets.first)
        return cls(CLUSTER_USER, key, SecretFile(secret_file, secrets))

    async def signer(self, peer: Peer, *, is_ours: bool, timeout_s: float) -> Sign:
        """The signer of the requests over a connection. Raises RemotingError."""
        if is_ours:
            answer = await peer.request(Command(RequestCode.SIGN_ON), timeout_s)
            if answer.code == ResponseCode.SUCCESS:
                given = decode_header(SignOnResponseHeader, answer)
                return partial(self._stamped, given, itertools.count(1))
        return lambda command: self._present_key().sign_as_stock(command, self.user)

    def _stamped(
        self, given: SignOnResponseHeader, numbers: itertools.count[int], command: Command
    ) -> None:
        stamp = Stamp(given.nonce, next(numbers), unix_ms())
        self._present_key().sign(command, self.user, stamp, given.body_hash)

    def _present_key(self) -> Key:
        """The key, of the secret that is first in the file now."""
        if self._file is not None and steady_s() - self._looked_at_s >= SECRET_LOOK_S:
            self._looked_at_s = steady_s()
            wanted = self._file.wanted()
            if wanted is not None:
                self._file.take(wanted)
                self._key = Key.of_cluster(wanted[0])
        return self._key
