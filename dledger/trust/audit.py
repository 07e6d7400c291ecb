"""The lines of an audit log: each change, and each refusal; a refusal that repeats is counted.
Pure.

A line is about one request: when (ms), who (`user`; "" for nobody that is known), from where, which
code, which objects, and the verdict:

``done``     the change was made
``failed``   it was allowed, and did not succeed
``unknown``  it was allowed; whether it was made is not known
``passed``   a follower has passed it on to the leader, who has a line of its own
``refused``  whoever asked may not

A refusal is written at once. What is refused to the same user at the same address for the same code
within a minute is counted, and gets one line when that minute is over. So nobody can fill a disk
with what is refused. No line has a secret: neither fields nor bodies of a request are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Literal

import msgspec

from dledger.limits import (
    AUDIT_FOLD_S,
    AUDIT_FOLDED_MAX,
    AUDIT_OBJECTS_MAX,
    AUDIT_TEXT_CHARACTERS_MAX,
)

Verdict = Literal["done", "failed", "unknown", "passed", "refused"]
_OTHERS: Final = ("", "others", 0)
"""The place of users and addresses for whom there is no room."""


class AuditLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of an audit log. `times`: how often the same was refused since the line before."""

    time_ms: int
    server: str
    user: str
    source: str
    code: int
    name: str
    verdict: Verdict
    objects: tuple[str, ...] = ()
    reason: str = ""
    times: int = 1

    def is_wanted(self, user: str | None, *, refused: bool) -> bool:
        """Whether it is about this user, or any with None; with `refused` only refusals count."""
        return user in (None, self.user) and (not refused or self.verdict == "refused")


class AuditPage(msgspec.Struct, frozen=True):
    """Some lines of an audit log, oldest first, as a server answers them.

    `next`: where the next page begins; `more`: whether it has something by now; `missed`: whether
    lines between the page before and this one are gone.
    """

    lines: list[AuditLine]
    next: str
    more: bool
    missed: bool


class Trail:
    """The changes and refusals that a server writes down. `server` is its name in the lines."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._since: dict[tuple[str, str, int], int] = {}
        self._more: dict[tuple[str, str, int], AuditLine] = {}

    def changed(
        self,
        now_ms: int,
        user: str,
        source: str,
        code: int,
        name: str,
        verdict: Verdict,
        objects: Iterable[str],
        reason: str = "",
    ) -> AuditLine:
        """The line of a change that was allowed."""
        return AuditLine(
            now_ms,
            self._server,
            _cut(user),
            source,
            code,
            name,
            verdict,
            _few(objects),
            _cut(reason),
        )

    def refused(
        self,
        now_ms: int,
        user: str,
        source: str,
        code: int,
        name: str,
        reason: str,
        objects: Callable[[], Iterable[str]] = tuple,
    ) -> Iterator[AuditLine]:
        """The lines that a refusal causes: its own, unless it is counted. Only the first has its
        objects: those that are counted may have others each."""
        yield from self.due(now_ms)
        key = (_cut(user), source, code)
        if key not in self._since and len(self._since) >= AUDIT_FOLDED_MAX:
            key = _OTHERS
        line = AuditLine(now_ms, self._server, *key, name, "refused", (), _cut(reason))
        if key not in self._since:
            self._since[key] = now_ms
            yield msgspec.structs.replace(line, objects=_few(objects()))
        else:
            before = self._more.get(key)
            times = 1 if before is None else before.times + 1
            self._more[key] = msgspec.structs.replace(line, times=times)

    def due(self, now_ms: int) -> Iterator[AuditLine]:
        """The lines of what was counted, and whose minute is over."""
        over = [key for key, since in self._since.items() if now_ms - since >= AUDIT_FOLD_S * 1000]
        for key in over:
            del self._since[key]
            if (line := self._more.pop(key, None)) is not None:
                yield line


def _few(objects: Iterable[str]) -> tuple[str, ...]:
    """The first objects; the last text says how many more there are."""
    named = [_cut(each) for each in objects]
    if len(named) <= AUDIT_OBJECTS_MAX:
        return tuple(named)
    more = len(named) - AUDIT_OBJECTS_MAX
    return (*named[:AUDIT_OBJECTS_MAX], f"and {more} more")


def _cut(text: str) -> str:
    return text[:AUDIT_TEXT_CHARACTERS_MAX]
