"""Faults to plant in small runs, and what only looks odd, by what they are about.

``plain``      what one thinks of first
``batch``      batches that are stored whole
``batches``    rows, decisions and ends of batches that change places
``content``    bodies, and what senders say beside them
``elsewhere``  known kinds in topics, queues and nodes where the others have none
``group``      groups that pop, and outputs
``life``       what tools do to topics and groups
``log``        logs, leaders and votes
``strange``    lies that whoever knows the promises alone would try
``subtle``     at the edge of what proves something
``thin``       properties that few others are about
``times``      messages that wait: delays and transactions
``tools``      what tools set, forbidden otherwise, or done unasked
``unseen``     what both judges once passed
"""
