"""Optional parts of libraries are left out of memory, and found where they are wanted."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dledger.program.extras import without

#: The server's modules, and its first line of log, which loads what writes it.
_SERVER = """
import sys
import mqbroker.app
from dledger.observe import get_logger
from dledger.program.logs import configure_logging
configure_logging()
get_logger("test").error("a line")
print(*sorted({"cryptography", "rich", "structlog"} & {*sys.modules}))
"""


def test_a_broker_does_not_load_what_its_libraries_could_do_besides() -> None:
    """A broker loads neither PySyncObj's encryption nor structlog's coloured tracebacks: 11 MB."""
    ran = subprocess.run(
        [sys.executable, "-c", _SERVER], capture_output=True, text=True, check=True
    )

    assert "a line" in ran.stderr
    assert ran.stdout.split() == ["structlog"]


def test_a_package_is_found_again_behind_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package is found again after the block, and within it if it was loaded before."""
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    with without("wave", "json"):
        import json  # noqa: F401, PLC0415

        with pytest.raises(ImportError):
            import wave  # noqa: PLC0415
    import wave  # noqa: F401, PLC0415
