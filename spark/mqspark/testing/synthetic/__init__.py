"""Replica directories and a history of a right run, written without a broker.

Only for tests and measurements of the audit. It is independent of the broker on purpose: judge and
judged must not share a mistake. The form of a record and of an entry is all it borrows.

``run``      the description of the run
``log``      a log's segments
``history``  the clients' events, as lines or as columns
``writing``  both together
"""

from mqspark.testing.synthetic.log import LogWriter
from mqspark.testing.synthetic.run import Run
from mqspark.testing.synthetic.writing import write_run

__all__ = ["LogWriter", "Run", "write_run"]
