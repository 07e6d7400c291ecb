"""The options of the data source `rocketmq`, named as those of Spark's source for Kafka. Pure.

Whatever is not an option here, has no effect where it is given, or contradicts another one, is an
error: an option that is misspelt must not look as if it were heeded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from dledger.addresses import parse_addresses
from dledger.errors import BadInput, ConfigError
from dledger.remoting.json_dialect import MessageQueue
from dledger.remoting.numbers import is_number
from dledger.tls.options import Tls, tls_named
from mqclient.consuming.subscriptions import ALL, Sql, parse_subscription

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_EARLIEST_OFFSET: Final = -2

#: Offset of each queue, by topic, broker and queue id; -2 is the earliest, -1 the latest.
Offsets = Mapping[MessageQueue, int]

CLUSTER_OPTIONS: Final = ("nameServer", "user", "secret", "tls", "tlsCert", "tlsKey")
_COMMON: Final = (
    *CLUSTER_OPTIONS,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "lossTable",
    "includeHeaders",
    "columns",
    "subExpression",
    "expressionType",
)
_BATCH: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAM: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "group")
_SPELLED: Final = {name.lower(): name for name in (*_COMMON, *_BATCH, *_STREAM)}


@dataclass(frozen=True)
class Place:
    """Where reading begins or ends: at a word, at offsets, or at times (ms) by topic or queue."""

    word: str = ""
    offsets: Offsets | None = None
    timestamp_ms: int | None = None
    by_topic_ms: Mapping[str, int] | None = None
    by_queue_ms: Offsets | None = None


class Access(TypedDict):
    """The parameters of a client that say who it is, and how it reaches servers."""

    user: str | None
    secret: str | None
    tls: Tls | None


@dataclass(frozen=True)
class Cluster:
    """A cluster by its name servers, and how it is reached."""

    name_server: str
    user: str | None
    secret: str | None = field(repr=False)
    tls: Tls | None

    @property
    def access(self) -> Access:
        """The parameters of a client that say who it is, and how it reaches servers."""
        return {"user": self.user, "secret": self.secret, "tls": self.tls}


@dataclass(frozen=True)
class Options:
    """The options of a read or a stream."""

    cluster: Cluster
    topics: tuple[str, ...]
    pattern: str
    queues: tuple[MessageQueue, ...]
    start: Place
    end: Place
    strict_times: bool
    fail_on_data_loss: bool
    loss_table: str
    min_partitions: int
    task_records_max: int | None
    rows_max: int | None
    bytes_max: int | None
    group: str
    columns: tuple[str, ...]
    headers: bool
    expression: str | Sql

    @property
    def tags(self) -> frozenset[str]:
        """The tags that a message must have one of; none if it need not."""
        if isinstance(self.expression, Sql) or self.expression == ALL:
            return frozenset()
        return frozenset(tag.strip() for tag in self.expression.split("||"))

    def wants(self, topic: str) -> bool:
        """Whether a topic is one of those that are read."""
        if self.pattern:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(queue.topic == topic for queue in self.queues)


def parse(given: Mapping[str, str], *, streaming: bool) -> Options:
    """The options of a batch read or of a stream. Raises ConfigError that names the option."""
    values = {name.lower(): value for name, value in given.items()}
    _check_names(values, streaming=streaming)

    def text(name: str) -> str:
        return values.get(name.lower(), "").strip()

    cluster = parse_cluster(values)
    try:
        expression = _expression(text("subExpression"), text("expressionType"))
    except BadInput as error:
        raise ConfigError(str(error)) from error
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if text(name)]
    if len(chosen) != 1:
        raise ConfigError(
            "give exactly one of the options subscribe, subscribePattern and assign; "
            f"given: {', '.join(chosen) or 'none'}"
        )
    fails = _flag("failOnDataLoss", text("failOnDataLoss") or "true")
    if text("lossTable") and fails:
        raise ConfigError("option lossTable needs failOnDataLoss=false: else a loss is an error")
    strategy = text("startingOffsetsByTimestampStrategy").lower() or "error"
    if strategy not in {"error", LATEST}:
        raise ConfigError(
            f"option startingOffsetsByTimestampStrategy={strategy!r}: it is 'error' or 'latest'"
        )
    return Options(
        cluster=cluster,
        topics=tuple(
            sorted({name for name in map(str.strip, text("subscribe").split(",")) if name})
        ),
        pattern=_pattern(text("subscribePattern")),
        queues=_assigned(text("assign")),
        start=_place(values, "starting", LATEST if streaming else EARLIEST),
        end=_place(values, "ending", LATEST),
        strict_times=strategy == "error",
        fail_on_data_loss=fails,
        loss_table=text("lossTable"),
        min_partitions=_count("minPartitions", text("minPartitions")) or 0,
        task_records_max=_count("maxRecordsPerPartition", text("maxRecordsPerPartition")),
        rows_max=_count("maxOffsetsPerTrigger", text("maxOffsetsPerTrigger")),
        bytes_max=_count("maxBytesPerTrigger", text("maxBytesPerTrigger")),
        group=text("group"),
        columns=tuple(name for name in map(str.strip, text("columns").split(",")) if name),
        headers=_flag("includeHeaders", text("includeHeaders") or "false"),
        expression=expression,
    )


def _check_names(values: Mapping[str, str], *, streaming: bool) -> None:
    for name in sorted(values):
        if name not in _SPELLED:
            raise ConfigError(
                f"the data source rocketmq has no option {name!r}; it has "
                + ", ".join(sorted(_SPELLED.values()))
            )
        spelled = _SPELLED[name]
        if spelled in _BATCH and streaming:
            raise ConfigError(f"option {spelled} is for batch reads: a stream has no end")
        if spelled in _STREAM and not streaming:
            raise ConfigError(f"option {spelled} is for streams: this is a batch read")


def parse_cluster(values: Mapping[str, str]) -> Cluster:
    """The cluster that options, by their names in small letters, name. Raises ConfigError."""
    name_server = values.get("nameserver", "").strip()
    if not name_server:
        raise ConfigError("option nameServer is missing: host:port;host:port of the name servers")
    try:
        parse_addresses(name_server)
    except BadInput as error:
        raise ConfigError(str(error)) from error
    return Cluster(
        name_server=name_server,
        user=values.get("user", "").strip() or None,
        secret=values.get("secret") or None,
        tls=_tls(*(values.get(name, "").strip() for name in ("tls", "tlscert", "tlskey"))),
    )


def _tls(authorities: str, certificate: str, key: str) -> Tls | None:
    """How servers are reached by TLS; the files are those of each machine that reads."""
    if not authorities:
        if certificate or key:
            raise ConfigError("options tlsCert and tlsKey are of no use without tls")
        return None
    if key and not certificate:
        raise ConfigError("option tlsKey is given without tlsCert, its certificate")
    return tls_named(authorities, certificate or None, key or None)


def _expression(text: str, kind: str) -> str | Sql:
    if kind.upper() not in {"", "TAG", "SQL92"}:
        raise ConfigError(f"option expressionType={kind!r}: it is 'TAG' or 'SQL92'")
    if kind and not text:
        raise ConfigError("option expressionType needs a subExpression")
    expression = Sql(text) if kind.upper() == "SQL92" else text or ALL
    parse_subscription("T", expression, 0)
    return expression


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"option subscribePattern={text!r}: {error}") from error
    return text


def _flag(name: str, value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise ConfigError(f"option {name}={value!r}: it is 'true' or 'false'")
    return value.lower() == "true"


def _count(name: str, value: str) -> int | None:
    if not value:
        return None
    if not (is_number(value, 18) and int(value)):
        raise ConfigError(f"option {name}={value!r}: it is a whole number from 1 on")
    return int(value)


def _time(name: str, value: object) -> int:
    text = str(value)
    is_time = isinstance(value, (str, int)) and not isinstance(value, bool)
    if not (is_time and is_number(text, 18)):
        raise ConfigError(f"option {name}={value!r}: a time is milliseconds since 1970")
    return int(text)


def _place(values: Mapping[str, str], side: str, default: str) -> Place:
    """Where reading begins ("starting") or ends ("ending")."""
    names = [f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"]
    given = [name for name in names if values.get(name.lower(), "").strip()]
    if len(given) > 1:
        raise ConfigError(f"give one of the options {' and '.join(given)}, not both")
    if not given:
        return Place(word=default)
    (name,) = given
    text = values[name.lower()].strip()
    if name == names[0]:
        return Place(timestamp_ms=_time(name, text))
    if name == names[1]:
        return _times(name, text)
    words = (LATEST,) if side == "ending" else (EARLIEST, LATEST)
    if text.lower() in words:
        return Place(word=text.lower())
    if not text.startswith("{"):
        raise ConfigError(f"option {name}={text!r}: it is {' or '.join(words)}, or JSON")
    return Place(offsets=_offsets(name, _json(name, text)))


def _times(name: str, text: str) -> Place:
    found = _json(name, text)
    if found and all(not isinstance(value, dict) for value in found.values()):
        return Place(by_topic_ms={topic: _time(name, ms) for topic, ms in found.items()})
    queues = _by_queue(name, found)
    return Place(by_queue_ms={queue: _time(name, ms) for queue, ms in queues.items()})


def _offsets(name: str, found: Mapping[str, object]) -> Offsets:
    offsets: dict[MessageQueue, int] = {}
    for queue, value in _by_queue(name, found).items():
        if not isinstance(value, int) or isinstance(value, bool) or value < _EARLIEST_OFFSET:
            raise ConfigError(
                f"option {name}: {queue} has the offset {value!r}; it is a whole number, or -2 "
                "(earliest) or -1 (latest)"
            )
        if name == "endingOffsets" and value == _EARLIEST_OFFSET:
            raise ConfigError(f"option {name}: {queue} can't end at -2 (earliest)")
        offsets[queue] = value
    return offsets


def _by_queue(name: str, found: Mapping[str, object]) -> dict[MessageQueue, object]:
    """JSON such as `{"topic": {"broker": {"0": 17}}}`, by queue. The key "life" is passed over:
    so the offsets of a stream can be given to a read."""
    values: dict[MessageQueue, object] = {}
    for topic, brokers in found.items():
        for broker, queues in _object(name, brokers).items():
            for queue_id, value in _object(name, queues).items():
                if queue_id == "life":
                    continue
                if not is_number(queue_id, 9):
                    raise ConfigError(f"option {name}: {queue_id!r} is not a queue id")
                values[MessageQueue(topic, broker, int(queue_id))] = value
    return values


def _object(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ConfigError(
            f'option {name}: {value!r} stands where an object must be: {{"topic": {{"broker": '
            '{"0": 17}}}'
        )
    return value


def _assigned(text: str) -> tuple[MessageQueue, ...]:
    if not text:
        return ()
    queues = []
    for topic, brokers in _json("assign", text).items():
        for broker, ids in _object("assign", brokers).items():
            is_list = isinstance(ids, list) and ids
            if not is_list or not all(type(each) is int and each >= 0 for each in ids):  # type: ignore[attr-defined]
                raise ConfigError(f"option assign: {broker} of {topic} needs a list of queue ids")
            queues += [MessageQueue(topic, broker, each) for each in ids]  # type: ignore[attr-defined]
    if not queues:
        raise ConfigError("option assign names no queue")
    return tuple(sorted(set(queues)))


def _json(name: str, text: str) -> Mapping[str, object]:
    try:
        return _object(name, json.loads(text))
    except json.JSONDecodeError as error:
        raise ConfigError(f"option {name}={text!r:.200} is not JSON: {error}") from error
