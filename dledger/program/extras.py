"""Optional parts of the installation: whether they are there, and how to get them."""

from __future__ import annotations

from importlib.util import find_spec

from dledger.errors import ConfigError

SPARK = ("pyspark", "pyarrow", "pandas")


def require_spark(what: str) -> None:
    """Raises ConfigError if what the audit is made of is not installed."""
    missing = [name for name in SPARK if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{what} needs Spark, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not installed: "
            "pip install 'dledger[spark]' (in a clone: pip install -e '.[spark]', or ./dev setup)"
        )
