"""The parts that producers, consumers and administration share: connections to brokers and name
servers.

``session``     connections, routes, leaders and heartbeats of one client
``heartbeats``  every broker knows the client
``peers``       one connection for each server
``routing``     where queues are: a table (pure)
``leaders``     finds the leader of a broker group
``retry``       what to do after a request that failed (pure)
``answers``     checks the bounds of servers' answers (pure)
``identity``    unique client ids and message keys
``lifetime``    objects that live in an `async with` block
``forks``       what is open stays behind when its process forks
``signals``     lets a task wait for a callback
``credentials``  what a client signs its requests with
``encrypted``  encryption of its connections
``proven``      a request with a proof of the cluster's secret, where a broker wants one
"""
