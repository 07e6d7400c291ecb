"""What producers, consumers and administration share: ways to the servers that know and lead.

``session``    connections, routes, leaders and heartbeats of one client
``peers``      one connection for each server
``routing``    where queues are: a table (pure)
``leaders``    who leads a broker group
``retry``      what to do after a request that did not succeed (pure)
``answers``    bounds of what servers say (pure)
``addresses``  as RocketMQ writes them
``identity``   names that nobody else has
``lifetime``   things that live in an `async with` block
``signals``    waiting for what a callback announces
"""
