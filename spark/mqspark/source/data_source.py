"""The batch data source `dledger`: replicas' own files as a DataFrame, off-line.

::

    session.dataSource.register(DledgerSource)
    session.read.format("dledger").option("path", "n0/store;n1/store").load()

| option | values | default |
|---|---|---|
| `path` (or `load(path)`) | replica directories, separated by `;` | needed |
| `level` | `messages`, `entries` | `messages` |
| `columns` | names, separated by commas: only these are read | all but the large ones |
| `verify` | `crc`: chain, entry and message CRCs; `none`: structure only | `crc` |
| `merge` | `true`, `false`: messages that replicas hold alike come once | `false` |
| `includeBody` | `true`, `false`: the column `body` | `false` |
| `includeProperties` | `true`, `false`: the column `properties`, a map | `false` |

Spark can't tell a Python source which columns a query needs. So name them in `columns`: each column
costs time. Nothing here writes, and no broker needs to run. A log may be read while it is written;
entries behind its committed end may change.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from dledger.errors import ConfigError
from mqspark.source.planning import find_replicas, split_paths
from mqspark.source.reader import SegmentReader
from mqspark.source.schema import MESSAGES, row_schema

FORMAT = "dledger"
#: Spark keeps option names in lower case.
_OPTIONS = frozenset(
    {"path", "paths", "level", "columns", "verify", "merge", "includebody", "includeproperties"}
)


class DledgerSource(DataSource):
    """Registered with a session, it serves `session.read.format("dledger")`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format for `spark.read.format`: "dledger"."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns that the options ask for. Raises ConfigError for a bad option."""
        unknown = sorted({name.lower() for name in self.options} - _OPTIONS)
        if unknown:
            raise ConfigError(f"the data source {FORMAT} has no option {unknown[0]!r}")
        columns = [name.strip() for name in self.options.get("columns", "").split(",")]
        return row_schema(
            self._level,
            [name for name in columns if name],
            body=self._flag("includeBody"),
            properties=self._flag("includeProperties"),
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of these directories. Raises ConfigError if they hold no replicas."""
        directories = split_paths(self.options.get("path", ""))
        directories += split_paths(self.options.get("paths", ""))
        if not directories:
            raise ConfigError(f"the data source {FORMAT} needs a path: replica directories")
        verify = self.options.get("verify", "crc")
        if verify not in {"crc", "none"}:
            raise ConfigError(f"option verify={verify!r}: it is 'crc' or 'none'")
        return SegmentReader(
            find_replicas(directories),
            self._level,
            schema,
            verify=verify == "crc",
            merge=self._flag("merge"),
        )

    @property
    def _level(self) -> str:
        return self.options.get("level", MESSAGES)

    def _flag(self, name: str) -> bool:
        value = self.options.get(name, "false").lower()
        if value not in {"true", "false"}:
            raise ConfigError(f"option {name}={value!r}: it is 'true' or 'false'")
        return value == "true"
