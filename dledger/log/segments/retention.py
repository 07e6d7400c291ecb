"""Chooses the old segments that may be removed. Pure.

Only whole segments are removed, the oldest first, and never the one that is being written. An old
entry may still be needed: by a follower that has not got it yet, or by a state machine whose
snapshot is older. Such entries stay, however old they are; the disk must have room for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment on the disk. `written_at_s`: when it was written to last, in Unix time."""

    base_position: int
    first_index: int
    size_bytes: int
    written_at_s: float


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """Bounds of the log's age in seconds and size in bytes; None means no bound of that kind."""

    age_max_s: float | None = None
    size_bytes_max: int | None = None


def first_kept(
    segments: Sequence[SegmentInfo], policy: RetentionPolicy, now_s: float, needed_index: int
) -> SegmentInfo | None:
    """The oldest segment to keep, if any before it can be removed; `needed_index` must stay."""
    total_bytes = sum(segment.size_bytes for segment in segments)
    kept: SegmentInfo | None = None
    for segment, following in pairwise(segments):
        old = policy.age_max_s is not None and now_s - segment.written_at_s > policy.age_max_s
        large = policy.size_bytes_max is not None and total_bytes > policy.size_bytes_max
        if not (old or large) or following.first_index > needed_index:
            break
        total_bytes -= segment.size_bytes
        kept = following
    return kept
