"""Replicas and histories written without a broker, and broken on purpose.

``synthetic``  writes a run as it should have been
``rewriting``  a log as values: read whole, changed, written again
``planting``   puts in the faults that judges must find
"""
