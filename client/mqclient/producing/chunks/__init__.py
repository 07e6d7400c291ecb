"""Messages that are encoded, kept account of and settled together.

``many``       many messages that differ in nothing but their bodies
``gathering``  messages that have nothing but a body, on the way to being many
"""
