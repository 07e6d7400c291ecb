"""Optional parts of the installation: whether they are there, and how to get them.

A program that sends and receives needs few packages; what else is here has an extra of its own
(`pyproject.toml`). A part whose packages are missing says so before it begins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final, Literal

from dledger.errors import ConfigError

Extra = Literal["bulk", "tools", "server", "spark", "tls"]

_BULK = ("numpy",)
_TOOLS = (*_BULK, "structlog", "cyclopts", "rich")
_SERVER = (*_TOOLS, "pysyncobj", "msgpack", "blake3", "h11")
PACKAGES: Final[dict[Extra, tuple[str, ...]]] = {
    "bulk": _BULK,
    "tools": _TOOLS,
    "server": _SERVER,
    "spark": (*_SERVER, "pyspark", "pyarrow", "pandas"),
    "tls": ("cryptography",),
}


def require(what: str, extra: Extra) -> None:
    """Raises ConfigError if a package of the `extra` is not installed."""
    missing = [name for name in PACKAGES[extra] if find_spec(name) is None]
    if missing:
        raise ConfigError(advice(what, extra, missing))


def advice(what: str, extra: Extra, missing: list[str]) -> str:
    """The advice which packages to install."""
    return (
        f"{what} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
        f"installed: pip install 'dledger[{extra}]' "
        f"(in a clone: pip install -e '.[{extra}]', or ./dev setup)"
    )


@contextmanager
def without(*packages: str) -> Iterator[None]:
    """Within the block an import does not find these packages, unless they are loaded already.

    For libraries that import a package if it is there, and do without it otherwise.
    """
    hidden = [name for name in packages if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type] # None: as if not installed
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
