"""Clients that are not ours, as the load of a run.

``programs``  any program that prints a history
``stock``     RocketMQ's own Java client
"""
