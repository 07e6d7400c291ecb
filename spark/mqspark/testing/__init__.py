"""Replicas and histories written without a broker, and broken on purpose.

``synthetic``  writes a run as it should have been, of any length
``rewriting``  a log as values: read whole, changed, written again
``planting``   puts in the faults that judges must find
``small_runs``  whole runs of some ten messages, from a seed
``small_making``  lets these happen
``small_plants``  faults for these
``innocents``     what only looks odd in them
``batch_plants``  of them, those of batches that are stored whole
``content_plants``  of them, those of bodies, and of what senders say beside them
``group_plants``  of them, those of groups that pop, and of outputs
``log_plants``  of them, those of logs, leaders and votes
``life_plants``  of them, those of what tools do to topics and groups
``strange_plants``  of them, those that whoever knows the promises alone would try
``subtle_plants``  of them, those at the edge of what proves something
``thin_plants``  of them, those of properties that few others are about
``waiting_plants``  of them, those of delays and transactions
``reference``  a second judge, without Spark
"""
