"""Examples run as they are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDERS_S = 10.0
"""About one on an idle machine; other tests run beside these."""


def python(*arguments: str) -> str:
    """Run Python and return what it printed; its errors are shown if it fails."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_log_works_without_a_broker() -> None:
    """examples/ledger.py has three nodes with the same entries."""
    printed = python("examples/ledger.py").splitlines()

    assert [line.endswith("key-9 = value-999") for line in printed].count(True) == 3


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a cluster that mqcluster started."""
    directory = str(tmp_path_factory.mktemp("mq") / "cluster")
    up = python("-m", "mqchaos.mqcluster", "up", "--dir", directory, "-o", "json")
    yield json.loads(up)["namesrv_addr"]
    python("-m", "mqchaos.mqcluster", "down", "--dir", directory)


def test_the_quickstart_sends_and_reads_ten_messages(namesrv: str) -> None:
    """examples/quickstart.py sends and reads ten messages."""
    printed = python("examples/quickstart.py", namesrv)

    assert printed.count("sent ") == printed.count("read ") == 10


def test_two_reminders_come_when_they_should(namesrv: str) -> None:
    """examples/delays.py delivers two reminders, and not the recalled one."""
    first, second = python("examples/delays.py", namesrv).splitlines()

    assert "in two seconds" in first
    assert "at that time" in second
    assert [float(line.split()[1]) for line in (first, second)] >= [2.0, 3.0]


def test_a_payment_is_tried_again_or_given_up(namesrv: str) -> None:
    """examples/retries.py tries payments again while others go on, and keeps wrong ones."""
    printed = python("examples/retries.py", namesrv).splitlines()

    assert printed == [
        "not yet: the bank does not answer for 250",
        "given up: 'much' is not an amount",
        "paid 20, at try 1",
        "paid 250, at try 2",
        "back to Payments: 'much'",
    ]


def test_bookings_keep_the_order_of_their_account(namesrv: str) -> None:
    """examples/ordered.py keeps each account's order, although one booking fails twice."""
    printed = python("examples/ordered.py", namesrv).splitlines()

    booked = [line for line in printed if line.endswith("]")]
    assert booked == [f"{account}: [1, 2, 3]" for account in ("ann", "bob", "eve")]


def test_an_order_is_packed_if_it_is_in_the_database(namesrv: str) -> None:
    """examples/transactions.py packs written orders, also of a program that failed afterwards."""
    printed = python("examples/transactions.py", namesrv)

    packed = {line for line in printed.splitlines() if line.startswith("packed")}
    assert packed == {"packed order-1", "packed order-3"}
    assert "asked about order-2: not there" in printed


def test_an_order_service_is_tested_within_its_own_process() -> None:
    """examples/orders has tests with real clusters, which take about a second."""
    printed = python(
        *("-m", "pytest", "-p", "mqlocal.plugin", "-p", "no:cacheprovider"),
        *("--durations=0", "--durations-min=0", "-vv", "examples/orders"),
    )
    took = re.findall(r"^(\d+\.\d+)s (?:call|setup|teardown)", printed, re.M)

    assert "4 passed" in printed
    assert len(took) == 12
    assert sum(map(float, took)) < ORDERS_S, printed


def test_a_failover_is_a_pause() -> None:
    """examples/failover.py has all 300 sends acknowledged, by two leaders."""
    printed = python("examples/failover.py")

    assert "300 messages acknowledged" in printed
    # A first election may take more than one term.
    before, after = re.findall(r"leader (?:before|after): +broker-a-n\d \(term (\d+)\)", printed)
    assert int(before) < int(after)


def test_three_workers_share_one_queue(namesrv: str) -> None:
    """examples/pop.py does each job once, the failing one at its second delivery."""
    printed = python("examples/pop.py", namesrv).splitlines()

    assert printed[-1] == "0 jobs left"
    jobs = [line.split(" did the ")[1] for line in printed if " did the " in line]
    assert sorted(jobs) == sorted(
        ["quick job, delivery 1"] * 10 + ["slow job, delivery 1", "failing job, delivery 2"]
    )
    assert len({line.split()[0] for line in printed if " did the " in line}) == 3


def test_each_order_has_one_bill(namesrv: str) -> None:
    """examples/exactly_once.py makes one bill an order, although it dies twice at work."""
    printed = python("examples/exactly_once.py", namesrv).splitlines()

    assert printed[-2:] == ["the first life is fenced", "12 bills, 12 different ones"]
    assert [line for line in printed if "ended" in line] == [
        "life 1 ended: the lights went out, and no bill was stored",
        "life 2 ended: the lights went out, and the bills were stored",
    ]


def test_a_print_shop_keeps_its_promises(namesrv: str) -> None:
    """examples/printshop.py shows expiry, large bodies, batches, priorities and rates."""
    *printed, pace = python("examples/printshop.py", namesrv).splitlines()

    assert printed[:2] == ["offer: open all day", "book-1: 10485756 bytes, whole"]
    assert re.fullmatch(r"booked in one entry: \[\d, \d\]", printed[2])
    assert printed[3] == "printed: wedding invitation"
    assert sorted(printed[4:]) == ["printed: flyer", "printed: poster"]
    took = re.fullmatch(r"25 pages at 10 a second: (\d+\.\d) s, some held back", pace)
    assert took is not None, pace
    assert float(took[1]) >= 1.3
