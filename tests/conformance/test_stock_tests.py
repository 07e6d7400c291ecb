"""Some of RocketMQ's own integration tests; `stock_tests` by itself runs all of them."""

from __future__ import annotations

from pathlib import Path

from clients import ready
from compatibility import stock_tests as section
from compatibility import with_stock_tests
from stock_tests import CLIENT, NOT_OURS, Result, published, record, run

from mqchaos.cluster.cluster import Cluster

QUICK = (
    "client.producer.async.AsyncSendExceptionIT",
    "client.producer.exception.msg.ChinaPropIT",
    "client.producer.exception.msg.MessageUserPropIT",
    "client.producer.oneway.OneWaySendIT",
)
"""Tests that need no third broker group."""

RESULTS = (
    Result("passed", "tag.TagIT", "testA", 1.0, ""),
    Result("passed", "tag.TagIT", "testB", 2.0, "at the second try; first: late"),
    Result("failed", "tag.TagIT", "testC", 1.5, "expected <1> but was <2>"),
    Result("not applicable", "tag.TagIT", "testD", 0.1, "calls BrokerController.shutdown"),
    Result("not applicable", "tls.TlsIT", "testE", 0.0, "TLS"),
    Result("not applicable", "tls.TlsIT", "testF", 0.0, "TLS"),
)


def test_a_run_becomes_a_section_of_the_page() -> None:
    """The section has a row for each class, a line for each odd result, and numbered reasons."""
    page = "\n".join(section(record(RESULTS)))

    assert "**2 of the 3 tests that fit passed.**" in page
    assert "| `tag.TagIT` | 2 | 1 | 1 |\n" in page
    assert "| `tls.TlsIT`" not in page
    assert "- `tag.TagIT.testC` failed: expected <1> but was <2>\n" in page
    assert "- `tag.TagIT.testB` passed: at the second try; first: late\n" in page
    assert "- TLS: `tls.TlsIT` (2)" in page
    assert "- calls BrokerController.shutdown: `tag.TagIT.testD` (1)" in page


def test_a_new_run_replaces_the_section_and_nothing_else() -> None:
    """The page before and behind the section stays as it was."""
    old = "\n".join(["# Page", *section(record(RESULTS[:1])), "", "## Codes", "", "10"])

    new = with_stock_tests(old, record(RESULTS))

    assert new == "\n".join(["# Page", *section(record(RESULTS)), "", "## Codes", "", "10"])
    assert with_stock_tests(new, record(RESULTS)) == new


def test_quick_ones_of_rocketmqs_own_tests_pass(cluster: Cluster, tmp_path: Path) -> None:
    """Some of RocketMQ's own tests pass unmodified, under JUnit, against our brokers."""
    argv = ready(CLIENT)
    names = published(CLIENT)
    known = [f"{name}." for name in names]
    for what, _ in NOT_OURS:
        assert any(name.startswith(what) or what.startswith(name) for name in known), what
    assert set(QUICK) <= set(names)

    results = list(run(argv, cluster.layout.namesrv_addr, QUICK, tmp_path / "log.txt"))

    assert {each.name for each in results} == set(QUICK)
    assert [each for each in results if each.outcome != "passed"] == []
