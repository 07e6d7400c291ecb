"""Faults that can be injected into a cluster.

``kinds``       the kinds of faults, as data (pure)
``targets``     which servers a role means (pure)
``fault``       how each is injected, healed, and looked for
``failpoints``  those inside our processes
``surroundings``  those of what servers live in
``network``     those of the network
``disk``        those of one replica's disk
``killing``     processes that are killed
``rotting``     a bit of a log that turns, an end that is gone
``obstacles``   what speaks against one
``machine``     what a machine lacks for one
``injected``    those of a run
``generator``   plans of faults from a seed (pure)
``schedule``    random ones, of all kinds (pure)
``power_loss``  power losses of whole machines
``wrecking``    what is done to a file system of a node's own
"""
