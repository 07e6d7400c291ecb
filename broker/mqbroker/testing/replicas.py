"""Replicas with real disks, logs and sockets, all in this process: quick to start, and to damage.

Leaving the block stops them, as a signal would stop a process. Tests damage the disks themselves.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from dledger.errors import RemotingError
from dledger.net import connect_peer
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import GroupInfoResponseHeader, decode_header
from dledger.remoting.record import Record
from mqbroker.app import run_broker
from mqbroker.config import BrokerConfig
from mqbroker.testing.requests import TIMEOUT_S, pull_request, records

SEGMENT_BYTES = 1 << 16
PATIENCE_S = 30.0


def replicas(directory: Path, count: int, **settings: object) -> list[BrokerConfig]:
    """The configs of a group's replicas, each with a folder below `directory`."""
    ports = free_ports(2 * count)
    names = [f"n{number}" for number in range(count)]

    def members(ports: Sequence[int]) -> str:
        return ";".join(f"{n}-127.0.0.1:{port}" for n, port in zip(names, ports, strict=True))

    return [
        msgspec.structs.replace(
            BrokerConfig(mapped_file_size_commit_log=SEGMENT_BYTES),
            listen_port=ports[number],
            store_path_root_dir=str(directory / name),
            d_leger_self_id=name,
            d_leger_peers=members(ports[count:]),
            group_client_addrs=members(ports[:count]),
            **settings,
        )
        for number, name in enumerate(names)
    ]


def free_ports(count: int) -> list[int]:
    """Free ports of this machine."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@asynccontextmanager
async def running(group: Sequence[BrokerConfig]) -> AsyncIterator[None]:
    """Run replicas; leaving the block stops them all, as SIGTERM would."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        for config in group:
            nursery.start_soon(run_broker, config, stop.wait)
        try:
            yield
        finally:
            stop.set()


async def group_info(config: BrokerConfig) -> GroupInfoResponseHeader | None:
    """A replica's answer about itself and its group; None if it is not there."""
    try:
        async with connect_peer("127.0.0.1", config.listen_port) as peer:
            answer = await peer.request(Command(RequestCode.GROUP_INFO), TIMEOUT_S)
    except RemotingError:
        return None
    return decode_header(GroupInfoResponseHeader, answer)


async def leader_of(group: Sequence[BrokerConfig]) -> BrokerConfig:
    """The replica that leads, when there is one."""
    with trio.fail_after(PATIENCE_S):
        while True:
            for config in group:
                info = await group_info(config)
                if info is not None and info.role == "leader":
                    return config
            await trio.sleep(0.05)


async def everything(group: Sequence[BrokerConfig], count: int) -> list[Record]:
    """The first `count` messages of queue 0 of the tests' topic, as a consumer gets them: it asks
    the leader, and again after a refusal, until it has them all."""
    found: list[Record] = []
    with trio.fail_after(PATIENCE_S):
        while len(found) < count:
            leader = await leader_of(group)
            found += await _some(leader, len(found), count)
            await trio.sleep(0.05)
    return found


async def _some(leader: BrokerConfig, offset: int, end: int) -> list[Record]:
    """Messages from `offset` on, until the end, a refusal, or a lost connection."""
    found: list[Record] = []
    try:
        async with connect_peer("127.0.0.1", leader.listen_port) as peer:
            while offset + len(found) < end:
                answer = await peer.request(pull_request(0, offset + len(found)), TIMEOUT_S)
                if answer.code != ResponseCode.SUCCESS:
                    break
                found += records(answer)
    except RemotingError:
        pass
    return found
