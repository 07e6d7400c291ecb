"""Answers of members of a broker group, with what a test does not care about filled in."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dledger.remoting.headers import GroupInfoResponseHeader


def group_info(end: int = 1, **told: Any) -> GroupInfoResponseHeader:
    """How a member sees its group: it leads, and has applied all of a log of `end` entries."""
    info = GroupInfoResponseHeader(
        "broker-a", "DefaultCluster", "n0", "leader", 1, [], end, end, end, end, counted=True
    )
    return replace(info, **told)
