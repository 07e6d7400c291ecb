"""Replicas and histories written without a broker, and broken on purpose.

``synthetic``  writes a run as it should have been, of any length
``rewriting``  a log as values: read whole, changed, written again
``planting``   puts in the faults that judges must find
``small_runs``  whole runs of some ten messages, from a seed
``small_making``  lets these happen
``declaring``  how a plant says what must be found of it
``small_plants``  faults for these, and what only looks odd in them
``plants``        both, by what they are about
``derived``       faults of what a broker makes from a log, and what only looks odd there
``reference``  a second judge, without Spark
"""
