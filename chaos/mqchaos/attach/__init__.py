"""Faults in a cluster that the harness did not start, by hooks of its operator.

``hooks``       the file that names nodes and commands
``attached``    one run against such a cluster
``performing``  from start to verdict
``clients``     the load: our client, or any program that writes a history
``readback``    judges by what consumers read back, without any file of the cluster's (pure)
"""
