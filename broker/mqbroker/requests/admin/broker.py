"""Requests about the broker itself: its config, its figures, the state of its group."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, Literal

from dledger.errors import ConfigError
from dledger.metrics.history import history_answer
from dledger.net import Connection
from dledger.observe import get_logger
from dledger.program.settings import FixedKey, parse_properties, write_properties
from dledger.remoting import headers
from dledger.remoting.bodies import BrokerStatsData, BrokerStatsItem, KVTable, encode_body
from dledger.remoting.codes import VERSION, RequestCode
from dledger.remoting.command import Command
from dledger.remoting.headers import decode_header, encode_header
from dledger.trust.guard import Asker, Mode
from dledger.trust.rights import GET, OPEN, UPDATE, cluster
from dledger.version import __version__
from mqbroker.flow.rates import Rates
from mqbroker.keys import SECRET_KEYS
from mqbroker.leader.appending.times import Times
from mqbroker.limits import USERS_DIGEST_CHARACTERS
from mqbroker.refusal import no_permission, refusing, system_error
from mqbroker.requests import rights
from mqbroker.requests.core import Core
from mqbroker.requests.needs import by_all, by_all_to_admin, by_leader_to_admin
from mqbroker.requests.reading.earliest import EarliestMessage
from mqbroker.state.control import PutSettings
from mqbroker.state.topics import default_topic

_THREAD_POOLS: Final = ("send", "pull", "query", "litePull", "ack", "endTransaction")
_log = get_logger(__name__)


class BrokerAdminHandler:
    """Answers requests about the broker's config, figures and group. Only the leader changes the
    config; every replica answers the others."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._started_ms = core.clock_ms()
        self._earliest = EarliestMessage(core.log)

    @by_all(RequestCode.GROUP_INFO, rights=OPEN)
    def group_info(self, request: Command, _: Connection) -> Command:
        """The state of the group, as this replica sees it."""
        core = self._core
        status, role = core.log.status, core.role
        role.take_members(status.members)
        idle: Literal["follower", "candidate"]
        idle = "candidate" if status.role == "candidate" else "follower"
        answer = headers.GroupInfoResponseHeader(
            broker_name=core.config.broker_name,
            cluster=core.config.broker_cluster_name,
            node_id=role.node_id,
            role="leader" if role.serving else idle,
            term=status.term,
            members=sorted(
                ({m.node_id: m.service for m in status.members} | role.addresses).items()
            ),
            last_index=status.last_index,
            commit_index=status.commit_index,
            applied_index=core.machine.applied_index,
            end_position=status.end_position,
            leader_id=role.leader_id,
            leader_addr=role.leader_address,
            preferred_leader_id=core.config.preferred_leader_id or None,
            fenced=status.fenced,
            learners=tuple(m.node_id for m in status.members if m.role == "learner"),
            counted=status.counted,
            set_aside=core.machine.aside.count,
            set_aside_last=tuple(core.machine.aside.last),
            faults=core.faults.count,
            unreached=tuple((m.node_id, m.problem) for m in status.members if m.problem),
        )
        return request.reply(ext=encode_header(answer))

    @by_all(RequestCode.GET_BROKER_CONFIG, rights=cluster(GET))
    def config(self, request: Command, _: Connection) -> Command:
        """The present config, as properties text; secrets are not shown."""
        text = write_properties(self._core.config, SECRET_KEYS)
        version = encode_body(self._core.machine.topics.version).decode()
        header = headers.GetBrokerConfigResponseHeader(version=version)
        return request.reply(ext=encode_header(header), body=text.encode())

    @by_leader_to_admin(RequestCode.UPDATE_BROKER_CONFIG, rights=rights.SETTINGS)
    def update_config(self, request: Command, _: Connection) -> Awaitable[Command]:
        """Change settings of all replicas. Keys that can't change are refused.

        An empty value restores the config file's.
        """
        return self._update(request, self._core.guard.asker)

    async def _update(self, request: Command, asker: Asker) -> Command:
        core = self._core
        changes = parse_properties(request.payload)
        queues_before = core.config.default_topic_queue_nums
        with refusing(ConfigError, system_error), refusing(FixedKey, no_permission):
            wanted = core.file_config.with_settings(core.machine.settings | changes)
        self._check_mode(Mode(wanted.authorization_mode), asker)
        await core.definitions.changed(PutSettings(changes, core.assignments.now_ms()))
        _log.info("config updated", changes=changes)
        topics = core.lacking_system_topics()
        queues = core.config.default_topic_queue_nums
        if core.config.auto_create_topic_enable and queues != queues_before:
            topics.append(default_topic(queues))
        if topics:
            core.definitions.put_topics(topics)
        return request.reply()

    def _check_mode(self, wanted: Mode, asker: Asker) -> None:
        """Refuse to enforce rights while nobody could take that back, and to take it back for who
        could then do what is refused now."""
        core = self._core
        if wanted is core.guard.mode:
            return
        if core.guard.mode is Mode.ENFORCE and not asker.may_all:
            raise no_permission(
                f"User:{asker.name} has no permission to change authorizationMode: it takes a "
                "super user"
            )
        if wanted is not Mode.ENFORCE:
            return
        if not core.secrets or not core.machine.users.has_super:
            raise system_error(
                "rights can't be enforced while there is no enabled super user, who could take it "
                "back: mqadmin createUser -u NAME -t Super"
                + ("" if core.secrets else "; that needs the cluster's secret (secretFile)")
            )

    @by_all_to_admin(
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        rights=cluster(UPDATE),
    )
    def nothing_to_clean(self, request: Command, _: Connection) -> Command:
        """There is never anything to clean up.

        Consume queues are derived from the log: they are removed with their messages, or with their
        topic, by the same entry on all replicas. So none is left over. Expired segments are removed
        every `cleanResourceInterval`.
        """
        return request.reply()

    @by_all(RequestCode.VIEW_BROKER_STATS_DATA, rights=rights.STATISTICS)
    def statistics(self, request: Command, _: Connection) -> Command:
        """A figure of a topic, a group, or the broker."""
        header = decode_header(headers.ViewBrokerStatsDataHeader, request)
        key = "" if header.stats_name.startswith("BROKER_") else header.stats_key
        windows = self._core.rates.statistics.windows(header.stats_name, key, self._core.clock_s())
        if windows is None:
            raise system_error(f"no {header.stats_name} of {header.stats_key!r} was counted here")
        minute, hour, day = (BrokerStatsItem(*window) for window in windows)
        return request.reply(body=encode_body(BrokerStatsData(minute, hour, day)))

    @by_all(RequestCode.VIEW_HISTORY, rights=cluster(GET))
    def history(self, request: Command, _: Connection) -> Command:
        """Figures of the last hour."""
        return history_answer(self._core.history, request)

    @by_all(RequestCode.GET_BROKER_RUNTIME_INFO, rights=cluster(GET))
    def runtime(self, request: Command, _: Connection) -> Command:
        """The keys that mqadmin shows."""
        core = self._core
        table = self._process_figures() | self._log_figures()
        table |= traffic_figures(core.rates) | _times(core.entries.times)
        for pool in _THREAD_POOLS:
            # Requests are handled as they come: there is no thread pool with a queue.
            table |= {
                f"{pool}ThreadPoolQueueSize": "0",
                f"{pool}ThreadPoolQueueCapacity": "0",
                f"{pool}ThreadPoolQueueHeadWaitTimeMills": "0",
            }
        return request.reply(body=encode_body(KVTable(table)))

    def _process_figures(self) -> dict[str, str]:
        core = self._core
        return {
            "brokerVersionDesc": "V4_9_8",
            "dledgerVersion": __version__,
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(self._started_ms),
            "runtime": _span((core.clock_ms() - self._started_ms) // 1000),
            "brokerRole": "SYNC_MASTER" if core.role.serving else "SLAVE",
            "leader": str(core.role.leader_id),
            "entriesSetAside": str(core.machine.aside.count),
            "unforeseenFaults": str(core.faults.count),
            "connections": str(core.quota.places_taken),
            "connectionsMax": str(core.quota.places_max),
            "connectionsRefused": str(core.quota.refused),
            "connectionsEvicted": str(core.quota.evicted),
            "connectionsOverMemory": str(core.quota.offenders),
            "connectionMemoryBytes": str(core.quota.charged_bytes),
            "connectionMemoryBytesMax": str(core.quota.bytes_max),
            "startAcceptSendRequestTimeStamp": "0",
            "metricsAddress": core.metrics_address,
            "clockTimestamp": str(core.clock_ms()),
        }

    def _log_figures(self) -> dict[str, str]:
        core, status = self._core, self._core.log.status
        disk = shutil.disk_usage(Path(core.config.store_path_root_dir).parent)
        ratio = f"{disk.used / disk.total:.4f}"
        earliest_ms = self._earliest.store_timestamp_ms(status.first_position, status.end_position)
        return {
            "term": str(status.term),
            "appliedIndex": str(core.machine.applied_index),
            "stateSavedIndex": str(core.machine.saved_index),
            "usersDigest": core.machine.users.digest()[:USERS_DIGEST_CHARACTERS],
            "logDigests": " ".join(f"{index}:{crc:08x}" for index, crc in core.log.digests()),
            "commitLogMinOffset": str(status.first_position),
            "commitLogMaxOffset": str(status.end_position),
            "commitLogDiskRatio": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {_gib(disk.total)}, Free : {_gib(disk.free)}.",
            "earliestMessageTimeStamp": str(earliest_ms),
            "dispatchBehindBytes": str(core.log.bytes_behind(core.machine.applied_index)),
            "pageCacheLockTimeMills": "0",
            "remainHowManyDataToFlush": "0 B",
        }


def traffic_figures(rates: Rates) -> dict[str, str]:
    """The figures of messages in and out."""
    puts, gets = rates.put_messages, rates.got_messages
    transferred = _three(gets.per_second())
    return {
        "putTps": _three(puts.per_second()),
        "getTotalTps": transferred,
        "getFoundTps": _three(rates.pulls_found.per_second()),
        "getMissTps": _three(rates.pulls_missed.per_second()),
        "getTransferedTps": transferred,
        "getTransferredTps": transferred,
        "msgPutTotalYesterdayMorning": str(puts.yesterday_morning),
        "msgPutTotalTodayMorning": str(puts.this_morning),
        "msgPutTotalTodayNow": str(puts.total),
        "msgGetTotalYesterdayMorning": str(gets.yesterday_morning),
        "msgGetTotalTodayMorning": str(gets.this_morning),
        "msgGetTotalTodayNow": str(gets.total),
        "sendsHeldBack": str(rates.sends_held_back.total),
        "readsHeldBack": str(rates.reads_held_back.total),
        "repeatsPutOff": str(rates.repeats_put_off.total),
        "putMessageTimesTotal": str(puts.total),
        "putMessageSizeTotal": str(rates.put_bytes.total),
        "putMessageAverageSize": f"{rates.put_bytes.total / max(puts.total, 1):.1f}",
    }


def _times(times: Times) -> dict[str, str]:
    """How long entries and reads took. Nothing is kept in a pool of direct memory here."""
    return {
        "putMessageDistributeTime": times.distribution,
        "putMessageEntireTimeMax": str(round(1000 * times.append_max_s)),
        "getMessageEntireTimeMax": str(round(1000 * times.read_max_s)),
        "dispatchMaxBuffer": "0",
        "remainTransientStoreBufferNumbs": "0",
    }


def _three(rates: list[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in rates)


def _span(seconds: int) -> str:
    """A span of time as RocketMQ writes it."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB"
