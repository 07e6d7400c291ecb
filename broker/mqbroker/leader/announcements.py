"""Topics that the name servers know, and the answers that wait until they do. Pure.

A client that was told of a topic may ask a name server for it at once, and a stock consumer that
does not find it fails, or asks again 30 s later. So an answer about a new or changed topic waits
until every connected name server has been told. The change itself is in the log by then.
`ANNOUNCE_S` after the change all answers are sent in any case, and a name server that was away is
told when it is back.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mqbroker import limits

_NOTHING = -1


@dataclass(frozen=True, slots=True)
class _Change:
    """The change that made `version`, and the answers that wait for it until `until_s`."""

    version: int
    until_s: float
    topics: Sequence[str]
    answers: list[Callable[[], None]] = field(default_factory=list)


class Announcements:
    """Changes that name servers are to be told, and who waits for it. `version` counts the changes
    to tell. `clock_s` is a monotonic clock."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._tell: Callable[[], None] = lambda: None
        self.version = 0
        self._known: dict[str, int] = {}
        #: The topics that each is still to be told of; None for everything.
        self._news: dict[str, set[str] | None] = {}
        self._changes: deque[_Change] = deque()
        #: The last change of each topic that is not told yet.
        self.unconfirmed: dict[str, _Change] = {}
        self._said_wiped: dict[str, bool] = {}
        #: Whether an operator has taken the group's write permission at a name server (see
        #: `heard`).
        self.wiped = False

    def watch(self, tell: Callable[[], None]) -> None:
        """Call `tell` whenever there is something to tell."""
        self._tell = tell

    def changed(self, topics: Sequence[str] = ()) -> None:
        """Note that topics, the role or a setting changed: name servers must be told."""
        self.version += 1
        change = _Change(self.version, self._clock_s() + limits.ANNOUNCE_S, topics)
        self._changes.append(change)
        self.unconfirmed.update(dict.fromkeys(topics, change))
        for namesrv, news in self._news.items():
            if not topics or news is None or len(news) + len(topics) > limits.NEWS_TOPICS_MAX:
                self._news[namesrv] = None
            else:
                news.update(topics)
        self.release()
        self._tell()

    def when_confirmed(self, topic: str, answer: Callable[[], None]) -> None:
        """Call `answer` when the name servers know the topic as it is now; at once if they do."""
        change = self.unconfirmed.get(topic)
        if change is None or len(change.answers) >= limits.ANNOUNCED_WAITING_MAX:
            answer()
        else:
            change.answers.append(answer)

    def connected(self, namesrv: str) -> None:
        """A name server is connected, and has been told nothing yet."""
        self._known[namesrv] = _NOTHING
        self._news[namesrv] = None
        self._judge_wiped()

    def news_for(self, namesrv: str) -> set[str] | None:
        """The topics that have changed since this was asked last, None for everything."""
        news = self._news.get(namesrv)
        self._news[namesrv] = set()
        return news

    def confirmed(self, namesrv: str, version: int) -> None:
        """A connected name server has confirmed that it knows `version`."""
        self._known[namesrv] = version
        self.release()

    def heard(self, namesrv: str, *, wiped: bool) -> None:
        """A name server says whether an operator has taken the group's write permission there.

        The word of one that is connected counts; while none is, the last word of each.
        """
        self._said_wiped[namesrv] = wiped
        self._judge_wiped()

    def _judge_wiped(self) -> None:
        said = self._said_wiped
        self.wiped = any(said.get(name, False) for name in self._known or said)

    def gone(self, namesrv: str) -> None:
        """A name server is gone: no answer waits for it."""
        self._known.pop(namesrv, None)
        self._news.pop(namesrv, None)
        self._judge_wiped()
        self.release()

    @property
    def next_s(self) -> float:
        """When the next answers are sent even if name servers do not know yet."""
        return self._changes[0].until_s if self._changes else math.inf

    def release(self) -> None:
        """Send the answers that have waited long enough, or whose change was told by now."""
        known, now_s = min(self._known.values(), default=self.version), self._clock_s()
        while self._changes and (
            self._changes[0].version <= known or self._changes[0].until_s <= now_s
        ):
            change = self._changes.popleft()
            for topic in change.topics:
                if self.unconfirmed.get(topic) is change:
                    del self.unconfirmed[topic]
            for answer in change.answers:
                answer()
