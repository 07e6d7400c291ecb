"""Writes replica directories and a history, without a broker: a run as it should have been.

Only for tests and measurements of the audit. It is independent of the broker on purpose: judge
and judged must not share a mistake. The form of a record and of an entry is all it borrows.

``run``      what the run is to be like
``log``      a log's segments
``history``  what clients say, as lines or as columns
``writing``  both together
"""

from mqspark.testing.synthetic.log import LogWriter
from mqspark.testing.synthetic.run import Run
from mqspark.testing.synthetic.writing import write_run

__all__ = ["LogWriter", "Run", "write_run"]
