"""The history of a run: what clients were answered and what the harness did, event by event.

``events``   the kinds of events, written and read as lines
``reading``  reads histories, in the order of time
``packed``   a history as Parquet, packed by a separate process
"""
