"""Answers of members of a broker group, made up, and of `mqadmin`, called in the test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from dledger.remoting.headers import GroupInfoResponseHeader
from mqclient.commands.mqadmin import main

if TYPE_CHECKING:
    from mqlocal import ThreadedCluster

LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[")


def group_info(end: int = 1, **told: Any) -> GroupInfoResponseHeader:
    """How a member sees its group: it leads, and has applied all of a log of `end` entries."""
    info = GroupInfoResponseHeader(
        "broker-a", "DefaultCluster", "n0", "leader", 1, [], end, end, end, end, counted=True
    )
    return replace(info, **told)


def mqadmin(
    capsys: pytest.CaptureFixture[str], cluster: ThreadedCluster, line: str
) -> tuple[int, str, str]:
    """Status, output without log lines, and errors of a command at a cluster in this process."""
    with pytest.raises(SystemExit) as ended:
        main([*line.split(), "-n", cluster.namesrv_addr])
    captured = capsys.readouterr()
    out = [text for text in captured.out.splitlines() if not LOG_LINE.match(text)]
    return int(ended.value.code or 0), "\n".join(out), captured.err
