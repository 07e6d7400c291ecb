"""The options and columns of the sink. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from dledger.errors import ConfigError
from dledger.remoting.numbers import INT64_MAX, is_number
from mqclient import Columns
from mqspark.topics.columns import COLUMNS
from mqspark.topics.options import CLUSTER_OPTIONS, Cluster, parse_cluster

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
_OF_ONCE: Final = ("home", "firstBatch")
_OPTIONS: Final = (*CLUSTER_OPTIONS, "topic", "delivery", *_OF_ONCE)
#: Given by Spark itself, or meant for it.
_SPARKS: Final = frozenset({"checkpointlocation", "queryname", "path"})
_SPELLED: Final = {name.lower(): name for name in _OPTIONS}
#: The columns that a table may have.
_WRITTEN: Final = ("value", "key", "tags", "properties", "bornTimestamp", "topic")


@dataclass(frozen=True)
class SinkOptions:
    """The options of a write. `topic` is "" if a column says it, and `home` if it is found."""

    cluster: Cluster
    topic: str
    once: bool = False
    home: str = ""
    first_batch: int = 0


def parse_sink(given: Mapping[str, str], names: Mapping[str, str]) -> SinkOptions:
    """The options of a write, to which the table has these columns (name to type as Spark names
    it). Raises ConfigError that names the option or column."""
    values = {name.lower(): value for name, value in given.items()}
    for name in sorted(values):
        if name not in _SPELLED and name not in _SPARKS:
            raise ConfigError(
                f"the sink rocketmq has no option {name!r}; it has {', '.join(sorted(_OPTIONS))}"
            )
    cluster = parse_cluster(values)
    topic = values.get("topic", "").strip()
    if bool(topic) == ("topic" in names):
        raise ConfigError(
            f"the topic of the rows is given {'twice' if topic else 'nowhere'}: by the option "
            "topic, or by a column topic"
        )
    _check_columns(names)
    delivery = values.get("delivery", "").strip()
    if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise ConfigError(
            f"option delivery={delivery!r}: give {EXACTLY_ONCE}; or {AT_LEAST_ONCE}: then rows of "
            "a task or batch that Spark runs again are stored again, but none waits for a commit"
        )
    once = delivery == EXACTLY_ONCE
    for name in _OF_ONCE:
        if name.lower() in values and not once:
            raise ConfigError(f"option {name} says something only with delivery={EXACTLY_ONCE}")
    first = values.get("firstbatch", "0").strip()
    if not is_number(first, len(str(INT64_MAX)) - 1):
        raise ConfigError(f"option firstBatch={first!r}: it is the number of a batch")
    return SinkOptions(cluster, topic, once, values.get("home", "").strip(), int(first))


def _check_columns(names: Mapping[str, str]) -> None:
    allowed = {
        "value": ("binary", "string"),
        "key": ("string",),
        "tags": ("string",),
        "topic": ("string",),
        "properties": ("map<string,string>",),
        "bornTimestamp": ("timestamp", "timestamp_ntz"),
    }
    if "value" not in names:
        raise ConfigError("the table has no column value: the body of each message")
    for name, kind in names.items():
        if name not in allowed:
            raise ConfigError(
                f"the sink rocketmq writes no column {name!r}; it writes {', '.join(_WRITTEN)}. "
                "Select these"
            )
        if kind not in allowed[name]:
            raise ConfigError(f"column {name} is {kind}; it must be {' or '.join(allowed[name])}")


def columns_of(batch: pa.RecordBatch) -> Columns:
    """The columns of an Arrow batch, as messages have them."""

    def column(name: str) -> pa.Array | None:
        place = batch.schema.get_field_index(name)
        return None if place < 0 else batch.column(place)

    body = column("value")
    assert body is not None, "it was checked"
    if not kinds.is_binary(body.type) and not kinds.is_large_binary(body.type):
        body = body.cast(COLUMNS["value"])
    return Columns(
        body, column("key"), column("tags"), column("properties"), column("bornTimestamp")
    )
