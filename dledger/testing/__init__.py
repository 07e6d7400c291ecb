"""What tests of this package, and of what is built on it, share: verified stand-ins.

``local``  a ledger of one node in memory, committing when it is told to
"""

from dledger.testing.local import LocalLedger

__all__ = ["LocalLedger"]
