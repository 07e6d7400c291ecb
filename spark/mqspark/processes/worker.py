"""The Python process in which Spark runs tasks, one after the other."""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


@cache
def leave_old_objects() -> None:
    """Take what this process has loaded out of its garbage collections, once.

    Spark's worker collects after each task, and takes the next one only then. It would look at all
    modules, which takes longer than a small task. `mqspark.daemon` sees to that itself; Spark's own
    daemon does not.
    """
    if TaskContext.get() is not None:
        gc.freeze()
