"""Requests of operators' tools, one module for each of their subjects.

``topics``      create, change, delete, list
``users``       users, and what each may do
``groups``      consumer groups and their settings
``changes``     what a change of a topic or group changes, and makes unreachable (pure)
``broker``      the broker itself: config, figures, clean-up
``exports``     copies of this replica
``leadership``  changes of the leader and of the members
"""
