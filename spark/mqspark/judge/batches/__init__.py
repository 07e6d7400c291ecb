"""Batches that are stored whole: property 19.

``faults``  what logs contradict (pure)
``whole``   the property
"""
