"""What a client proves who it is by: a user's name and secret, or the cluster's secret.

Our servers give each connection a nonce, and every request over it is stamped and signed
(`dledger.trust.signatures`), so that none can be sent again. RocketMQ's own servers are sent
their own signature.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dledger.errors import BadInput
from dledger.net import Peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import SignOnResponseHeader, decode_header
from dledger.trust.secret import read_secret
from dledger.trust.signatures import CLUSTER_USER, Key, Stamp, check_name
from dledger.world import unix_ms

Sign = Callable[[Command], None]


class Credentials:
    """A user, and the key made of its secret. The secret itself is not kept."""

    def __init__(self, user: str, key: Key) -> None:
        self.user = user
        self._key = key

    def __repr__(self) -> str:
        return f"<Credentials of {self.user}>"

    @classmethod
    def of(cls, user: str | None, secret: str | None) -> Credentials | None:
        """Those of a user; without a user those of the cluster, whose secret it is then. None if
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
    def of_cluster(cls, secret_file: Path) -> Credentials:
        """Those of whoever has the cluster's secret. Raises ConfigError."""
        return cls(CLUSTER_USER, Key.of_cluster(read_secret(secret_file).encode()))

    async def signer(self, peer: Peer, *, is_ours: bool, timeout_s: float) -> Sign:
        """What signs the requests over a connection. Raises RemotingError."""
        if is_ours:
            answer = await peer.request(Command(RequestCode.SIGN_ON), timeout_s)
            if answer.code == ResponseCode.SUCCESS:
                nonce = decode_header(SignOnResponseHeader, answer).nonce
                return partial(self._stamped, nonce, itertools.count(1))
        return lambda command: self._key.sign_as_stock(command, self.user)

    def _stamped(self, nonce: str, numbers: itertools.count[int], command: Command) -> None:
        self._key.sign(command, self.user, Stamp(nonce, next(numbers), unix_ms()))
