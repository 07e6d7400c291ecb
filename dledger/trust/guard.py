"""Decides who asks, and whether that one may: the same at brokers and at name servers. Pure.

With `off` nothing is asked. With `observe` each request is judged, and what would be refused is
noted and served; with `enforce` it is refused. Who asks is known by a signature (`signatures`), or
by a proof of the cluster's secret, which may do everything. Neither is remembered: each request is
verified, whatever came before it on its connection.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from dledger import limits
from dledger.remoting.command import Command
from dledger.trust.floods import Floods
from dledger.trust.rights import (
    GET,
    LIST,
    OPEN,
    PUB,
    SUB,
    Action,
    Alternatives,
    Kind,
    Look,
    Need,
    Rights,
    topic_needs,
)
from dledger.trust.rolling import Secrets
from dledger.trust.signatures import ACCESS_KEY, CLUSTER_USER, Stamp, stamp_of
from dledger.trust.users import Keys, User, Users

T = TypeVar("T")

NOBODY: Final = "username cannot be null."
WRONG: Final = "check signature failed."
_SEEN: Final[tuple[Action, ...]] = (GET, LIST, SUB, PUB)
"""Rights of which one suffices to find a topic or group in lists."""


class Mode(StrEnum):
    """Setting `authorizationMode`: whether rights are ignored, only observed, or enforced."""

    OFF = "off"
    OBSERVE = "observe"
    ENFORCE = "enforce"


class Asker(NamedTuple):
    """The origin of a request: user and address. With a `problem` it is nobody; `wrong` if a
    signature is at fault."""

    name: str
    source: str
    user: User | None = None
    problem: str = ""
    wrong: bool = False

    @property
    def may_all(self) -> bool:
        """Whether this is a super user, or has the cluster's secret."""
        if self.problem:
            return False
        return self.name == CLUSTER_USER or (self.user is not None and self.user.is_super)


class Guard:
    """The judge of one server. `nonce_key` is random, and made anew at each start."""

    def __init__(
        self,
        secret: bytes | Secrets,
        users: Callable[[], Iterable[Users]],
        look: Look,
        clock_ms: Callable[[], int],
        nonce_key: bytes,
    ) -> None:
        self.mode = Mode.OFF
        #: The asker of the request that is served now. Read it before anything is awaited.
        self.asker = Asker("", "")
        #: Requests that would have been refused since the start, by user and need.
        self.observed: Counter[tuple[str, Need]] = Counter()
        #: Requests of nobody who is known, by address and claimed name, with the last reason.
        self.strangers: dict[tuple[str, str], tuple[int, str]] = {}
        #: Requests that were, or would have been, refused.
        self.refused = 0
        self._users = users
        #: Looks up the facts on which rights depend, beside a request.
        self.look = look
        self._clock_ms = clock_ms
        self._nonce_key = nonce_key
        self._keys = Keys(Secrets.of(secret))
        self._counts: dict[int, int] = {}
        self._wrong: Counter[int] = Counter()
        #: The last user who signed rightly on each connection.
        self._signed: dict[int, str] = {}
        self._signatures, self._passwords = Floods(), Floods()

    # -- who asks ---------------------------------------------------------------------------

    def nonce(self, connection_id: int) -> str:
        """The nonce that stamps of a connection must have."""
        of = connection_id.to_bytes(8, "big")
        return hmac.digest(self._nonce_key, of, hashlib.sha256).hex()[:32]

    def forget(self, connection_id: int) -> None:
        """Forget the user of a connection that is gone."""
        self._counts.pop(connection_id, None)
        self._wrong.pop(connection_id, None)
        self._signed.pop(connection_id, None)

    def identified(self, request: Command, connection_id: int, source: str) -> Asker:
        """The user that has signed a request. After too many wrong signatures of an address, none
        of it is verified for a while, but those of users who signed rightly on the same
        connection."""
        name = request.ext.get(ACCESS_KEY)
        if not isinstance(name, str) or not name.isprintable() or not name:
            return Asker("", source, problem=NOBODY)
        if self._signed.get(connection_id) != name:
            wait_s = self._signatures.waits_s(source, self._clock_ms())
            if wait_s:
                return Asker(name, source, problem=_later("signatures", source, wait_s))
        asker = self._verified(name, request, connection_id, source)
        if asker.wrong:
            self._signed.pop(connection_id, None)
            self._signatures.wrong(source, request.size_bytes, self._clock_ms())
        elif not asker.problem:
            self._signed[connection_id] = name
        return asker

    def _verified(self, name: str, request: Command, connection_id: int, source: str) -> Asker:
        if name == CLUSTER_USER:
            return self._of_cluster(request, connection_id, source)
        found = [user for users in self._users() if (user := users.get(name)) is not None]
        if not found:  # nothing is hashed for it, and a server that has just begun knows nobody
            return Asker(name, source, problem=f"User:{name} is not found.")
        for user in found:
            asker = self._signed_by(user, request, connection_id, source)
            if not asker.problem:
                break
        return asker

    def known(self, name: str, source: str) -> Asker:
        """A user whose signature another member has verified."""
        if name == CLUSTER_USER:
            return Asker(name, source)
        user = next((u for users in self._users() if (u := users.get(name)) is not None), None)
        if user is None or not user.enabled:
            problem = f"User:{name} is {'not found' if user is None else 'disabled'}."
            return Asker(name, source, problem=problem if name else NOBODY)
        return Asker(name, source, user)

    def password_refusal(self, name: str, password: str, source: str, cluster: str) -> str | None:
        """Why whoever shows a name and a password may not `Get` this cluster; None if that one
        may. Where nothing is signed, as over HTTP."""
        if wait_s := self._passwords.waits_s(source, self._clock_ms()):
            return _later("passwords", source, wait_s)
        for users in self._users():
            user = users.get(name)
            key = self._keys.key(user) if user is not None and user.enabled else None
            if key is not None and key.is_of(password):
                asker = Asker(name, source, user)
                need = Need(Kind.CLUSTER, cluster, (GET,))
                may = asker.may_all or self.meets(asker, (need,))
                return None if may else self._refusal_text(asker, need)
        self._passwords.wrong(source, 0, self._clock_ms())
        return "the name or the password is wrong"

    def rest_s(self, source: str) -> float:
        """Nobody that is known asked, and is refused: for how long that connection rests."""
        return self._signatures.rest_s(source, self._clock_ms())

    def is_flood(self, connection_id: int) -> bool:
        """Count a wrong signature; whether its connection has sent too many."""
        self._wrong[connection_id] += 1
        return self._wrong[connection_id] >= limits.WRONG_SIGNATURES_MAX

    def _of_cluster(self, request: Command, connection_id: int, source: str) -> Asker:
        asker = Asker(CLUSTER_USER, source)
        if not any(key.verifies(request) for key in self._keys.of_cluster):
            return asker._replace(problem=WRONG, wrong=True)
        return asker._replace(problem=self._not_fresh(asker.name, request, connection_id))

    def _signed_by(self, user: User, request: Command, connection_id: int, source: str) -> Asker:
        asker = Asker(user.name, source, user)
        if not user.enabled:
            return asker._replace(problem=f"User:{user.name} is disabled.")
        key = self._keys.key(user)
        if key is None or not key.verifies(request):
            return asker._replace(problem=WRONG, wrong=True)
        if user.fresh or stamp_of(request) is not None:
            return asker._replace(problem=self._not_fresh(asker.name, request, connection_id))
        return asker

    def _not_fresh(self, name: str, request: Command, connection_id: int) -> str:
        """Why a request may have been sent before; "" if it can't have been."""
        stamp = stamp_of(request)
        if stamp is None:
            return (
                f"User:{name} takes no requests that could be sent again: "
                "use a client that stamps them (ours), or clear requireFresh"
            )
        problem = self._outdated(stamp, connection_id)
        if not problem:
            self._counts[connection_id] = stamp.number
        return problem

    def _outdated(self, stamp: Stamp, connection_id: int) -> str:
        if not hmac.compare_digest(stamp.nonce.encode(), self.nonce(connection_id).encode()):
            return f"{WRONG} It was signed for another connection"
        if stamp.number <= self._counts.get(connection_id, 0):
            return f"{WRONG} It was sent before"
        apart_s = abs(self._clock_ms() - stamp.time_ms) / 1000
        if apart_s > limits.STAMP_AGE_S:
            return f"{WRONG} It was signed {apart_s:.0f} s ago or ahead: look at the clocks"
        return ""

    # -- whether that one may ---------------------------------------------------------------

    def refusal(self, asker: Asker, request: Command, rights: Rights) -> str | None:
        """Why a request is refused; None if it is not. While rights are only observed it is noted,
        too. Sets `asker`."""
        self.asker = asker
        reason = self._reason(asker, request, rights)
        if reason is not None:
            self.refused += 1
        return reason

    def _reason(self, asker: Asker, request: Command, rights: Rights) -> str | None:
        if rights is OPEN or asker.may_all:
            return None
        if asker.problem:
            self._note_stranger(asker)
            return asker.problem
        if rights.by_secret:
            return f"User:{asker.name} has no permission: request {request.code} is for servers"
        if rights.by_super:
            return f"User:{asker.name} has no permission: request {request.code} is for super users"
        reason = None
        for alternatives in rights.needs(request, self.look):
            if not self.meets(asker, alternatives):
                need = alternatives[0]
                self._note(asker.name, need)
                reason = reason or self._refusal_text(asker, need)
        return reason

    def meets(self, asker: Asker, alternatives: Alternatives) -> bool:
        """Whether somebody has one of these rights."""
        if any(need.kind is Kind.USER and need.name == asker.name for need in alternatives):
            return True
        return any(
            users.policies(asker.name).meets(alternatives, asker.source)
            for users in self._users()
            if users.get(asker.name) is not None
        )

    def _refusal_text(self, asker: Asker, need: Need) -> str:
        """The refusal as RocketMQ words it, and what would be needed."""
        denied = any(
            users.policies(asker.name).judge(need, asker.source).entry is not None
            for users in self._users()
        )
        why = "the decision is deny." if denied else "no matched policies."
        return (
            f"User:{asker.name} has no permission to access {need.kind}:{need.name} from "
            f"{asker.source}, {why} It needs {' or '.join(need.actions)}"
        )

    def _note(self, name: str, need: Need) -> None:
        key = name, need
        if key in self.observed or len(self.observed) < limits.OBSERVED_NEEDS_MAX:
            self.observed[key] += 1

    def _note_stranger(self, asker: Asker) -> None:
        key = asker.source, asker.name[: limits.USER_NAME_BYTES_MAX]
        if key in self.strangers or len(self.strangers) < limits.STRANGERS_NOTED_MAX:
            count, _ = self.strangers.get(key, (0, ""))
            reason = asker.problem[: limits.AUDIT_TEXT_CHARACTERS_MAX]
            self.strangers[key] = count + 1, reason

    def sight(self) -> Sight:
        """The names that the present asker finds in lists. It stays so while others ask."""
        sees_all = self.mode is not Mode.ENFORCE or self.asker.may_all
        return Sight(self, self.asker, sees_all=sees_all)


class Sight:
    """The names that an asker finds in lists of topics and groups. Lists are cut in steps, as they
    may be very long."""

    def __init__(self, guard: Guard, asker: Asker, *, sees_all: bool) -> None:
        self._guard = guard
        self._asker = asker
        #: Whether nothing is left out.
        self.sees_all = sees_all

    def topics(self, table: dict[str, T]) -> Generator[None, None, dict[str, T]]:
        """The rows of the topics that are found."""
        return self._cut(table, lambda name: topic_needs(self._guard.look, name, *_SEEN))

    def groups(self, table: dict[str, T]) -> Generator[None, None, dict[str, T]]:
        """The rows of the consumer groups that are found."""
        return self._cut(table, lambda name: ((Need(Kind.GROUP, name, _SEEN),),))

    def _cut(
        self, table: dict[str, T], needs: Callable[[str], Iterable[Alternatives]]
    ) -> Generator[None, None, dict[str, T]]:
        asker, meets = self._asker, self._guard.meets
        if self.sees_all:
            return table
        found = dict[str, T]()
        for name, row in table.items():
            if not asker.problem and all(meets(asker, each) for each in needs(name)):
                found[name] = row
            yield
        return found


def _later(what: str, source: str, wait_s: float) -> str:
    return (
        f"too many wrong {what} came from {source}: none of it is verified for another "
        f"{math.ceil(wait_s)} s. Nothing was done"
    )
