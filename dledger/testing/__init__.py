"""What tests of this package, and of what is built on it, share: verified stand-ins.

``local``       a ledger of one node in memory, committing when it is told to
``disk``        a disk that forgets what was not synced, tears what was being written, and fails
``scripted``    one node on virtual time, with peers that a test plays by hand
``scripted_group``  several of them, that hear each other
``transcript``  scenarios as text: commands, and what each node then says to whom
``telling``     messages and nodes in words

What any log must do, on whatever disk, to be inherited by tests:

``log_contract``    the promises, each as a test
``log_store``       what a log is, and where one can lie
``log_model``       a list of entries that keeps them, to compare others with

What a group's programs may rely on, likewise:

``ledger_contract`` the promises of appends, reads, leadership, members
``ledger_groups``   a group on virtual time that keeps them

A whole group under a seed (``simulation`` is the command):

``group``       the simulation: nodes that come and go, and time
``node``        a node of it, stepped as the ledger's loops would
``network``     links that delay, stall and break
``clients``     what clients and operators ask of it
``regrouping``  members that come and go
``weather``     which faults a run has, and how often
``faults``      the weather's odds turned into events
``damage``      disks that rot, and how many of them the group can bear
``repairing``   nodes that wait until their logs are repaired
``healing``     the end of a run, when all must become whole
``judge``       Raft's invariants, looked at after every step
``client_history``  what clients were told, and whether it is true
``planted``     bugs to put back in: the simulation must catch each (``planted_raft``,
                ``planted_storage``)
"""

from dledger.testing.local import LocalLedger

__all__ = ["LocalLedger"]
