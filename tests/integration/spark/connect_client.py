"""A client of Spark Connect, of its own process: it writes a topic, copies it, and reads the copy.

::

    python connect_client.py NAME_SERVER FROM TO ROWS CHECKPOINT

The client needs nothing of ours: the server's workers find the data source by its name.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main() -> None:
    """Print the numbers that the copy has, sorted."""
    name_server, source, target, rows, checkpoint = sys.argv[1:]
    session = SparkSession.builder.remote("local[2]").getOrCreate()
    options = {"nameServer": name_server}
    writing = options | {"delivery": "exactly-once"}
    numbers = session.range(0, int(rows), 1, 2).selectExpr("cast(id as string) value")
    numbers.write.format("rocketmq").options(**writing, topic=source).mode("append").save()
    stream = session.readStream.format("rocketmq").options(**options, subscribe=source)
    copied = stream.option("startingOffsets", "earliest").load().select("value").writeStream
    copied = copied.format("rocketmq").options(**writing, topic=target)
    query = copied.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    found = session.read.format("rocketmq").options(**options, subscribe=target).load()
    print(*sorted(int(bytes(row.value)) for row in found.select("value").collect()))
    session.stop()


if __name__ == "__main__":
    main()
