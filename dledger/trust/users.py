"""The users of a cluster, and what each may do: a table that changes by whole rows. Pure.

Brokers replicate it, and tell it to name servers. It is the same wherever it was made by the same
changes, and so is its digest.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from dledger import limits
from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.trust.policies import Entry, Policies
from dledger.trust.rolling import Secrets
from dledger.trust.signatures import Key
from dledger.trust.wrapping import Wrapping


class User(NamedTuple):
    """A user, as a snapshot keeps it. `fresh`: only stamped requests are taken."""

    name: str
    wrapped: bytes
    is_super: bool = False
    enabled: bool = True
    fresh: bool = False
    entries: tuple[Entry, ...] = ()


class Users:
    """The users of a cluster, by name."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}
        self._policies: dict[str, Policies] = {}
        #: Entries of all users.
        self.entries = 0
        #: Changes with the table, within one process.
        self.version = 0
        self._digest = 0, ""

    def __len__(self) -> int:
        return len(self._users)

    def __iter__(self) -> Iterator[User]:
        return iter(sorted(self._users.values(), key=lambda user: user.name))

    def get(self, name: str) -> User | None:
        """The user of this name, or None."""
        return self._users.get(name)

    def policies(self, name: str) -> Policies:
        """The policies of a user, arranged for looking up. They are kept until the user changes."""
        found = self._policies.get(name)
        if found is None:
            user = self._users.get(name)
            found = self._policies[name] = Policies(() if user is None else user.entries)
        return found

    def put(self, user: User) -> None:
        """Make a user, or replace all that is known of one."""
        self.delete(user.name)
        self.version += 1
        self._users[user.name] = user
        self.entries += len(user.entries)

    def delete(self, name: str) -> None:
        """Forget a user and its policies."""
        user = self._users.pop(name, None)
        self._policies.pop(name, None)
        self.version += 1
        self.entries -= 0 if user is None else len(user.entries)

    @property
    def has_super(self) -> bool:
        """Whether some enabled user may do everything."""
        return any(user.is_super and user.enabled for user in self._users.values())

    def dump(self) -> list[User]:
        """The users for a snapshot."""
        return list(self)

    def restore(self, users: Iterable[User]) -> None:
        """Take over what a snapshot, or a broker, has kept."""
        self._users = {user.name: user for user in users}
        self._policies.clear()
        self.version += 1
        self.entries = sum(len(user.entries) for user in self._users.values())

    def digest(self) -> str:
        """A digest that is equal for equal tables. It is kept until the table changes: each
        question for a broker's state is answered with it."""
        version, digest = self._digest
        if not digest or version != self.version:
            digest = hashlib.sha256(msgspec.msgpack.encode(self.dump())).hexdigest()[:16]
            self._digest = self.version, digest
        return digest


def encoded(users: Users) -> bytes:
    """The table as a broker tells it to a name server."""
    return zlib.compress(msgspec.msgpack.encode(users.dump()), 1)


def decoded(data: Buffer) -> list[User]:
    """The users that `encoded` wrote. Raises BadInput."""
    inflater = zlib.decompressobj()
    try:
        inflated = inflater.decompress(data, limits.USERS_INFLATED_BYTES_MAX)
        if not inflater.eof:
            raise BadInput(
                f"users end early, or take more than {limits.USERS_INFLATED_BYTES_MAX} bytes"
            )
        return msgspec.msgpack.decode(inflated, type=list[User])
    except (zlib.error, msgspec.MsgspecError) as error:
        raise BadInput(f"no users that can be read: {error}") from error


def unwrapped(user: User, secrets: Iterable[bytes]) -> str | None:
    """A user's password; None if none of these secrets has wrapped it."""
    for secret in secrets:
        try:
            return Wrapping(secret).unwrap(user.name, user.wrapped)
        except (BadInput, UnicodeDecodeError):
            continue
    return None


def wrapped_anew(user: User, secrets: Secrets) -> User | None:
    """The user with the password wrapped with the first secret; None if it is so already, or
    can't be read."""
    password = unwrapped(user, secrets.valid)
    if password is None:
        return None
    wrapped = Wrapping(secrets.first).wrap(user.name, password)
    return None if wrapped == user.wrapped else user._replace(wrapped=wrapped)


class Keys:
    """The keys of a table's users, made when they are first needed, with the secrets that are
    valid at that time."""

    def __init__(self, secret: bytes | Secrets) -> None:
        self._secrets = Secrets.of(secret)
        self._keys: dict[bytes, Key] = {}
        self._renew()

    def _renew(self) -> None:
        self._valid = self._secrets.valid
        self._of_cluster = tuple(map(Key.of_cluster, self._valid))
        self._keys.clear()

    @property
    def of_cluster(self) -> tuple[Key, ...]:
        """The keys of whoever has a valid secret of the cluster; none without one."""
        if self._valid is not self._secrets.valid:
            self._renew()
        return self._of_cluster

    def key(self, user: User) -> Key | None:
        """A user's key; None if another secret has wrapped the password."""
        if self._valid is not self._secrets.valid:
            self._renew()
        known = self._keys.get(user.wrapped)
        if known is not None:
            return known
        password = unwrapped(user, self._secrets.proven)
        if password is None:
            return None
        key = Key(password)
        if len(self._keys) >= limits.USERS_MAX:
            self._keys.clear()  # of users that are gone, or have another password now
        self._keys[user.wrapped] = key
        return key
