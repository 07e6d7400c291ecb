"""RocketMQ's own Java client as the load of a run: found where the conformance suite builds it.

The driver beside it (`tests/conformance/java/Steady.java`) sends as an application does that wants
its messages stored: one synchronous send after the other, and at an exception the same message
object again, until it is acknowledged. A push consumer reads all of it in order.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from dledger.errors import ConfigError
from mqchaos.limits import STOCK_AGAIN_MS, STOCK_POLL_MS, STOCK_SENDERS

DRIVER: Final = "Steady"
_CACHE: Final = Path(".cache") / "conformance"
_CLONE: Final = Path(__file__).parents[4]


def stock_lacks(stock: str) -> str | None:
    """Why this stock client can't be started here, and what helps; None if it can."""
    if shutil.which("java") is None:
        return "java is not installed (Debian: openjdk-17-jdk-headless)"
    if _home(stock) is None:
        return f"{_CACHE / stock} has no driver: ./dev test tests/conformance builds it"
    return None


def _home(stock: str) -> Path | None:
    """Below the current folder, or below the clone that this code lies in."""
    homes = [root / _CACHE / stock for root in (Path.cwd(), _CLONE)]
    return next((home for home in homes if (home / "classes" / f"{DRIVER}.class").exists()), None)


def argv_of(
    stock: str, namesrv_addr: str, topic: str, rate_per_s: float, *, tls: bool = False
) -> list[str]:
    """The command of a JVM that sends about so many a second. Raises ConfigError."""
    lacks, home = stock_lacks(stock), _home(stock)
    if lacks is not None or home is None:
        raise ConfigError(lacks or stock)
    # The tools' jar brings a logging configuration of its own, which prints to standard output.
    jars = [jar for jar in sorted((home / "lib").glob("*.jar")) if "rocketmq-tools" not in jar.name]
    numbers = (STOCK_SENDERS, round(1000 * STOCK_SENDERS / rate_per_s), STOCK_POLL_MS)
    return [
        shutil.which("java") or "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Duser.home={home}",
        f"-Dtls.enable={str(tls).lower()}",
        "-cp",
        ":".join(map(str, [home / "classes", *jars])),
        DRIVER,
        *(namesrv_addr, client_of(stock), topic),
        *map(str, numbers),
        str(STOCK_AGAIN_MS),
    ]


def client_of(stock: str) -> str:
    """The client's name in the history."""
    return stock.partition("-")[0]


def group_of(stock: str, topic: str) -> str:
    """The consumer group that the driver reads in."""
    return f"{client_of(stock)}-{topic}"
