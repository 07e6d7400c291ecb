"""Requests of operators' tools.

``door``        who may change others' work: by address, or with a proof
``topics``      create, change, delete, list
``users``       users, and what each may do
``groups``      consumer groups and their settings
``changes``     what a change of a topic or group changes, and makes unreachable (pure)
``broker``      the broker itself: config, figures, clean-up
``exports``     copies of this replica
``leadership``  changes of the leader and of the members
``statistics``  traffic by minute, hour and day (pure)
``rates``       traffic over the last seconds and minutes (pure)
"""
