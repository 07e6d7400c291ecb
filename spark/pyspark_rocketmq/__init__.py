"""Spark finds the data source `rocketmq` by this module: it looks for modules named `pyspark_...`.

Nothing else is in it. The source is :mod:`mqspark.topics`.
"""

from mqspark.topics.data_source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
