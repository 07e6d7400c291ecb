"""The process that Spark forks its Python workers from: it has read all modules beforehand.

Spark's own one leaves that to the workers. Each takes most of a second for it, and after every task
looks through all that it has read for garbage. Here the modules are read once and then frozen: what
is frozen is no garbage, and its pages stay shared.

A fork has none of its parent's threads. So numpy starts none, which it would need for matrices
only; Arrow's allocator starts one, and knows how to be forked.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: Modules that the workers will import: Spark's own side of a task, and ours. Arrow reads pandas to
#: know its types when it is first given numbers.
_READ: Final = ("pyspark.worker", "mqspark.screening.tasks", "pandas")


def without_zips(path: Sequence[str]) -> list[str]:
    """`path` without the archives that are a part of a pyspark installed on it.

    Spark puts them in front. They hold what is installed anyway, and Python compiles them anew in
    every process.
    """

    def is_doubled(entry: Path) -> bool:
        site = entry.parent.parent.parent.parent
        lib = site / "pyspark" / "python" / "lib"
        return entry.suffix == ".zip" and entry.parent == lib and str(site) in path

    return [entry for entry in path if not is_doubled(Path(entry))]


def main() -> None:
    """Read all modules, then serve Spark until it closes our input."""
    sys.path[:] = without_zips(sys.path)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in _READ:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    importlib.import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
