"""Faults of a simulated group, and how they end.

``faults``      the odds turned into events
``damage``      disks that rot, and how many of them the group can bear
``regrouping``  members that come and go
``healing``     the end of a run, when all must become whole
"""
