"""Nodes on virtual time that a test drives; they do nothing by themselves.

``node``        one node; the test plays its peers
``group``       several nodes that are connected
``transcript``  scenarios as text: commands, and the messages that each node then sends
``telling``     messages and nodes in words
"""
