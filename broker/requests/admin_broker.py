"""Questions about the broker itself: codes 26, 28, and GROUP_INFO (9002)."""

from __future__ import annotations

from typing import Literal

import msgspec

from broker.requests.core import Core
from dledger.net import Connection
from dledger.remoting.bodies import KVTable, encode_body
from dledger.remoting.codes import VERSION
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    GetBrokerConfigResponseHeader,
    GroupInfoResponseHeader,
    encode_header,
)


class BrokerAdminHandler:
    """Answers them, on every replica."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._started_ms = core.clock_ms()

    def group_info(self, request: Command, _: Connection) -> Command:
        """GROUP_INFO: how the group stands, seen from here."""
        core = self._core
        status, role = core.log.status, core.role
        idle: Literal["follower", "candidate"]
        idle = "candidate" if status.role == "candidate" else "follower"
        answer = GroupInfoResponseHeader(
            broker_name=core.config.broker_name,
            cluster=core.config.broker_cluster_name,
            node_id=role.node_id,
            role="leader" if role.serving else idle,
            term=status.term,
            members=sorted(role.addresses.items()),
            last_index=status.last_index,
            commit_index=status.commit_index,
            applied_index=core.machine.applied_index,
            end_position=status.end_position,
            leader_id=role.leader_id,
            leader_addr=role.leader_address,
        )
        return request.reply(ext=encode_header(answer))

    def config(self, request: Command, _: Connection) -> Command:
        """GET_BROKER_CONFIG, as properties text."""
        values = msgspec.to_builtins(self._core.config)
        text = "".join(f"{key}={_shown(value)}\n" for key, value in values.items())
        version = encode_body(self._core.machine.topics.version).decode()
        header = GetBrokerConfigResponseHeader(version=version)
        return request.reply(ext=encode_header(header), body=text.encode())

    def runtime(self, request: Command, _: Connection) -> Command:
        """GET_BROKER_RUNTIME_INFO: the keys that mqadmin shows."""
        core = self._core
        status, rates, now_ms = core.log.status, core.rates, core.clock_ms()
        transferred = _three(rates.got_messages.per_second())
        puts = rates.put_messages
        table = {
            "brokerVersionDesc": "V4_9_8",
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(self._started_ms),
            "runtime": f"{(now_ms - self._started_ms) // 1000} s",
            "putTps": _three(puts.per_second()),
            "getTotalTps": transferred,
            "getFoundTps": _three(rates.pulls_found.per_second()),
            "getMissTps": _three(rates.pulls_missed.per_second()),
            "getTransferedTps": transferred,
            "getTransferredTps": transferred,
            "msgPutTotalTodayNow": str(puts.total),
            "msgGetTotalTodayNow": str(rates.got_messages.total),
            "putMessageTimesTotal": str(puts.total),
            "putMessageSizeTotal": str(rates.put_bytes.total),
            "putMessageAverageSize": f"{rates.put_bytes.total / max(puts.total, 1):.1f}",
            "commitLogMinOffset": str(status.first_position),
            "commitLogMaxOffset": str(status.end_position),
            "dispatchBehindBytes": "0",
            "remainHowManyDataToFlush": "0 B",
            "brokerRole": "SYNC_MASTER" if core.role.serving else "SLAVE",
            "term": str(status.term),
            "leader": str(core.role.leader_id),
            "appliedIndex": str(core.machine.applied_index),
        }
        return request.reply(body=encode_body(KVTable(table)))


def _three(rates: list[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
