"""Changes and refusals that servers have written down: their audit logs, over the network."""

from __future__ import annotations

from collections import deque

import msgspec

from dledger.addresses import parse_address
from dledger.buffers import Buffer
from dledger.errors import BadInput
from dledger.remoting.headers import ListAuditedHeader
from dledger.trust.audit import AuditLine, AuditPage
from mqclient import limits
from mqclient.admin.requests import expect_success
from mqclient.admin.session import Part
from mqclient.arguments import check_count


class Audit(Part):
    """Part `admin.audit`: reads the servers' audit logs. Each server has a log of its own; super
    users read it."""

    async def lines(
        self,
        server: str,
        *,
        begin_ms: int = 0,
        user: str | None = None,
        refused: bool = False,
        count: int = limits.AUDIT_LINES_SHOWN,
    ) -> tuple[AuditLine, ...]:
        """The last so many lines of the server at "host:port", a broker or a name server, oldest
        first: since `begin_ms`, of one `user` if it is given, or only what was refused. Raises
        Refused, BadInput."""
        self._requests.check_open()
        parse_address(server)
        found = deque[AuditLine](maxlen=check_count("count", count))
        after: str | None = None
        while True:
            header = ListAuditedHeader(
                after=after, begin_ms=begin_ms, user=user, refused=refused or None
            )
            answer = await self._requests.ask(server, header)
            page = _page_in(expect_success(answer, header, server).payload, server)
            found += page.lines
            if not page.more or page.next == after:
                return tuple(found)
            after = page.next


def _page_in(payload: Buffer, server: str) -> AuditPage:
    try:
        return msgspec.json.decode(payload, type=AuditPage)
    except (msgspec.DecodeError, ValueError) as error:
        raise BadInput(f"{server} answered with no page of an audit log: {error}") from error
