"""The machine's own tools, for what only root can do: file systems, network namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection
from typing import Final

from mqchaos.cluster.processes import ClusterError
from mqchaos.limits import TOOL_TIMEOUT_S

PATH: Final = os.pathsep.join(("/usr/sbin", "/sbin", "/usr/bin", "/bin"))
"""Where root's tools are, whatever the user's PATH says."""


def tool(name: str) -> str:
    """The whole path of a tool. Raises ClusterError if it is not installed."""
    found = shutil.which(name, path=PATH)
    if found is None:
        raise ClusterError(f"{name} is not installed")
    return found


def run_tool(*argv: str, stdin: str = "", good: Collection[int] = (0,)) -> str:
    """Run a tool and return what it printed; `stdin` is its standard input. Raises ClusterError if
    it does not end with a `good` status."""
    command = [tool(argv[0]), *argv[1:]]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": PATH},
            timeout=TOOL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"{' '.join(argv)} did not end in {TOOL_TIMEOUT_S:.0f} s") from error
    if done.returncode not in good:
        raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
