"""What tests of this package, and of what is built on it, share: verified stand-ins.

``local``       a ledger of one node in memory, committing when it is told to
``disk``        a disk that forgets what was not synced, tears what was being written, and fails
``scripted``    nodes on virtual time, told by a test or a text what to do; what each then says
``contracts``   what any log and any ledger must do, as tests to inherit
``simulation``  whole groups under a seed, judged after every step; the command
``planted``     bugs to put back in: the simulation must catch each
"""

from dledger.testing.local import LocalLedger

__all__ = ["LocalLedger"]
