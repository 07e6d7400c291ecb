"""Copies of a group that serves: each is whole, and nobody waits for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from clusters import new_cluster

from dledger.log.recovery.verify import verify_replica
from dledger.log.replica import describe_replica
from mqchaos.cluster.probe import serving
from mqclient import Admin, Message, Producer
from mqclient.admin import UnknownTarget
from mqclient.commands.mqadmin import main
from mqclient.errors import Refused

BODY = bytes(100_000)


async def fill(producer: Producer, messages: int) -> int:
    """Send, and return the position of the last message."""
    position = 0
    for _ in range(messages):
        position = (await producer.send(Message("Orders", BODY))).position
    return position


def mqadmin(words: list[str]) -> None:
    """Call the command, which ends with its status."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert not ended.value.code


async def test_a_group_that_serves_is_copied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command copies all members under sends, and each copy has all earlier acknowledgements.

    Old segments cost nothing. Then one member is copied, and wrong requests are refused.
    """
    with new_cluster(tmp_path, segment_bytes=4 << 20).running() as cluster:
        namesrv = cluster.layout.namesrv_addr
        await serving(cluster)
        async with Producer(namesrv, "PG") as producer, trio.open_nursery() as nursery:
            await fill(producer, 130)
            last = (await producer.send(Message("Orders", b"the last"))).position
            nursery.start_soon(fill, producer, 40)
            words = ["exportReplica", "-n", namesrv, "-b", "broker-a", "--to", "nightly/1"]
            await trio.to_thread.run_sync(mqadmin, [*words, "-o", "json"])
        printed = capsys.readouterr().out
        copies = json.loads(printed[printed.index("{\n") :])["result"]
        async with Admin(namesrv) as admin:
            (one,) = await admin.replicas.export("broker-a", "again", "n1")
            with pytest.raises(Refused, match="exists already"):
                await admin.replicas.export("broker-a", "again", "n1")
            with pytest.raises(Refused, match="not a valid name for a copy"):
                await admin.replicas.export("broker-a", "../up", "n1")
            with pytest.raises(UnknownTarget, match="no member 'n7'"):
                await admin.replicas.export("broker-a", "other", "n7")

    assert [copy["node_id"] for copy in copies] == ["n0", "n1", "n2"]
    for copy in copies:
        checked, manifest = (
            verify_replica(Path(copy["directory"])),
            describe_replica(Path(copy["directory"])).manifest,
        )
        assert checked.damaged == checked.torn == 0
        assert manifest is not None
        assert manifest.end_position == checked.end_position
        assert manifest.linked >= 2
    leads = max(copies, key=lambda copy: int(copy["end_position"]))
    assert leads["end_position"] > last
    assert Path(one.directory).parts[-3:] == ("exports", "again", "broker-a-n1")
