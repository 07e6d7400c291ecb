"""Nodes on virtual time that do what they are told, and nothing by themselves.

``node``        one, with peers that a test plays by hand
``group``       several, that hear each other
``transcript``  scenarios as text: commands, and what each node then says to whom
``telling``     messages and nodes in words
"""
