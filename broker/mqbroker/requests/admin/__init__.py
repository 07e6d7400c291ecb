"""Requests of operators' tools.

``topics``      create, change, delete, list
``groups``      consumer groups and their settings
``broker``      the broker itself: config, figures, clean-up
``leadership``  who leads, and who belongs here
``statistics``  what went in and out, by the minute, hour and day (pure)
``rates``       the same over the last seconds and minutes (pure)
"""
