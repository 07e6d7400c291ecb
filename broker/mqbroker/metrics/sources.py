"""Sources of a broker's figures: parts that have them anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dledger.log.segments.retention import SegmentInfo
from dledger.metrics.text import Buckets
from dledger.net.watchdog import Watchdog
from mqbroker.flow.following import Following
from mqbroker.requests.core import Core
from mqbroker.requests.groups.lag import Standing
from mqbroker.requests.groups.membership import Membership


@dataclass(frozen=True, slots=True)
class Sources:
    """Parts of a broker without its sockets."""

    core: Core
    membership: Membership
    standing: Standing
    following: Following


@dataclass(frozen=True, slots=True)
class Process:
    """Figures that only a broker with a log on a disk has.

    `saved_s`: when its state was saved last, by trio's clock; None if that was before its start.
    `saving`: how long that took, in seconds.
    """

    segments: Callable[[], Sequence[SegmentInfo]]
    saved_s: Callable[[], float | None]
    saving: Buckets
    watchdog: Watchdog | None
