"""Verified stand-ins, for the tests of this package and of those that build on it.

``local``        a ledger of one node in memory, which commits when a test says so
``disk``         a disk that forgets what was not synced, tears what was being written, and fails
``lossy``        a folder of real files of which a disk has lost pages, by FUSE
``standstills``  stops a process again and again, as a shared machine does
``virtual``      clocks, threads and sockets for whole clusters in one event loop on virtual time
``scripted``     nodes on virtual time that a test or a text drives, and the messages that they send
``logs``         the lines that were logged in a block, as data
``certificates``  certificates of an authority that a test has made, as files
``log_store``    the interface of a log, and where it can lie
``contracts``    the promises of any log and any ledger, as tests to inherit
``simulation``   whole groups under a seed, judged after every step; the command
``planted``      bugs to plant: the simulation must catch each
"""

from dledger.testing.local import LocalLedger

__all__ = ["LocalLedger"]
