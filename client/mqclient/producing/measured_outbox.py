"""The outbox of a producer that is made with metrics: it counts what is refused before it is in a
batch, around the calls that refuse it. A producer without metrics has a plain outbox.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from dledger.errors import DledgerError
from mqclient.producing.measuring import About, Measured
from mqclient.producing.outbox import Outbox

CallT = TypeVar("CallT", bound="Callable[..., Any]")


def _counting(method: CallT) -> CallT:
    """A call of an outbox that counts what it refuses."""

    @wraps(method)
    def call(outbox: MeasuredOutbox, about: About, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(outbox, about, *args, **kwargs)
        except DledgerError as error:
            outbox.measured.refused(about, error)
            raise

    return cast("CallT", call)


class MeasuredOutbox(Outbox):
    """An outbox that counts the messages it refuses."""

    measured: Measured

    check_room = _counting(Outbox.check_room)
    choose = _counting(Outbox.choose)
    choose_each = _counting(Outbox.choose_each)
    gather = _counting(Outbox.gather)
    put = _counting(Outbox.put)
    put_together = _counting(Outbox.put_together)
    chunks = _counting(Outbox.chunks)

    async def wait_ready(self, topic: str, timeout_s: float, *, for_any: bool) -> None:
        """Wait until there is room, and count it if there is none, or no route."""
        try:
            await super().wait_ready(topic, timeout_s, for_any=for_any)
        except DledgerError as error:
            self.measured.refused(topic, error)
            raise
