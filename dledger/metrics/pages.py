"""The paths that every server answers: its figures, details of them, and whether it is well.

`/healthz`, `/readyz` and `/safe-to-stop` answer 200, or 503 with the reason; a supervisor may ask
without a proof, and then gets the status alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import NamedTuple, Protocol

from dledger.errors import BadInput
from dledger.metrics import limits
from dledger.metrics.admission import CHALLENGE, Admission
from dledger.metrics.cached import CachedPage
from dledger.metrics.requests import Answer, Asked, NoSuchName
from dledger.metrics.text import CONTENT_TYPE

PATHS = "/metrics, /metrics/detailed?topic=...&group=..., /healthz, /readyz, /safe-to-stop"


class Details(NamedTuple):
    """The subject of a request for details: topics, groups, or each pair of both."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]


class Health(Protocol):
    """Whether a server is well. Each is None, or the reason why not."""

    def alive(self) -> str | None:
        """Whether a restart would not help."""

    def ready(self) -> str | None:
        """Whether clients can be sent here."""

    def safe_to_stop(self) -> str | None:
        """Whether others go on without this server."""


class Pages:
    """The pages of a server, by path."""

    def __init__(
        self,
        admission: Admission,
        figures: Callable[[], Iterable[str]],
        details: Callable[[Details], Iterable[str]],
        health: Health,
    ) -> None:
        self._admission = admission
        self._figures = CachedPage(figures)
        self._details = details
        self._cached: dict[Details, CachedPage] = {}
        self._health = {
            "/healthz": health.alive,
            "/readyz": health.ready,
            "/safe-to-stop": health.safe_to_stop,
        }

    async def __call__(self, asked: Asked) -> Answer:
        """The answer to a request."""
        if (refusal := self._admission.plain_refusal(asked)) is not None:
            return Answer.text(HTTPStatus.BAD_REQUEST, refusal)
        refusal = self._admission.refusal(asked)
        judge = self._health.get(asked.path)
        if judge is not None:
            return _health(judge(), shown=refusal is None)
        if refusal is not None:
            text = f"{refusal}\n".encode()
            return Answer(HTTPStatus.UNAUTHORIZED, text, challenge=CHALLENGE)
        try:
            if asked.path == "/metrics":
                return _figures(await self._figures.page())
            if asked.path == "/metrics/detailed":
                return _figures(await self._cached_details(_details(asked)).page())
        except NoSuchName as error:
            return Answer.text(HTTPStatus.NOT_FOUND, str(error))
        except BadInput as error:
            return Answer.text(HTTPStatus.BAD_REQUEST, str(error))
        return Answer.text(HTTPStatus.NOT_FOUND, f"there is no {asked.path[:80]!r}: {PATHS}")

    def _cached_details(self, wanted: Details) -> CachedPage:
        page = self._cached.get(wanted)
        if page is None:
            if len(self._cached) >= limits.PAGES_KEPT_MAX:
                del self._cached[next(iter(self._cached))]
            page = self._cached[wanted] = CachedPage(lambda: self._details(wanted))
        return page


def _details(asked: Asked) -> Details:
    """The details that are asked for. Raises BadInput."""
    unknown = asked.values.keys() - {"topic", "group"}
    topics, groups = (dict.fromkeys(asked.values.get(key, ())) for key in ("topic", "group"))
    if unknown or not (topics or groups):
        raise BadInput(
            "details are of topics, of groups, or of groups in topics: "
            "/metrics/detailed?topic=T&group=G; each may be given more than once"
        )
    if len(topics) + len(groups) > limits.NAMES_ASKED_MAX:
        raise BadInput(f"more than {limits.NAMES_ASKED_MAX} topics and groups are asked for")
    return Details(tuple(topics), tuple(groups))


def _figures(page: bytes) -> Answer:
    return Answer(HTTPStatus.OK, page, CONTENT_TYPE, keeps=True)


def _health(problem: str | None, *, shown: bool) -> Answer:
    if problem is None:
        return Answer.text(HTTPStatus.OK, "ok")
    return Answer.text(HTTPStatus.SERVICE_UNAVAILABLE, problem if shown else "no")
