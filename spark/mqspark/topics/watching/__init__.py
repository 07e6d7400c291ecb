"""Watches a Spark session: how far its queries are behind their topics, and jobs that take long.

``progress``  how far a query is behind, from positions and ends (pure)
``listener``  listens to each batch; asks brokers, logs and shows
``watch``     `watch(spark, ...)`: the listener, `/metrics`, and lines of long jobs
"""
