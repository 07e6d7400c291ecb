"""What tests of this package, and of what is built on it, share: verified stand-ins.

``local``       a ledger of one node in memory, committing when it is told to
``disk``        a disk that forgets what was not synced, and tears what was being written
``simulation``  a whole group on virtual time, under a seed, judged after every step
``planted``     bugs to put back in: the simulation must catch each
"""

from dledger.testing.local import LocalLedger

__all__ = ["LocalLedger"]
