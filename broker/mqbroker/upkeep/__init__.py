"""Periodic work of a broker: it removes old messages, watches the disk, and mends files.

``retention``   which messages are removed
``disk_space``  how full the disk is, and what is done about it
``mending``     rebuilds damaged files
``keeping``     no exception of a background task ends the broker
``alarm``       when a loop has something to do next
"""
