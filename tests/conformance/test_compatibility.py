"""The page says what the results say, and the request codes are probed for it."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from codes import probe
from compatibility import render

from dledger.remoting.codes import RequestCode
from mqchaos.cluster.cluster import Cluster

RESULTS: dict[str, Any] = {
    "made": "2026-11-21",
    "clients": [
        {"name": "a", "title": "Java", "version": "1"},
        {"name": "b", "title": "Go", "version": "2"},
    ],
    "titles": {"send": "Sends", "pull": "Pulls", "nobody": "Tried by nobody"},
    "features": {
        "send": {
            "a": {"outcome": "passed", "reason": ""},
            "b": {"outcome": "failed", "reason": "lost one\nof two"},
        },
        "pull": {"a": {"outcome": "missing", "reason": "java is not installed"}},
    },
    "codes": [
        {"code": 10, "name": "SEND_MESSAGE", "broker": "leader", "namesrv": "unknown"},
        {"code": 37, "name": "END_TRANSACTION", "broker": "unknown", "namesrv": "unknown"},
    ],
}


def test_each_result_is_a_field_and_each_failure_has_its_reason() -> None:
    """What nobody tried has no row, and a client that does not try a feature an empty field."""
    page = render(RESULTS, {"version": "5", "made": "2026-11-22", "classes": {}})

    assert "run of the conformance suite on 2026-11-21" in page
    assert "| feature | Java 1 | Go 2 |\n|--|--|--|\n| Sends | yes | **no** |" in page
    assert "| Pulls | ? |  |" in page
    assert "- Go 2, Sends: lost one\n" in page
    assert "- Java 1, Pulls: java is not installed\n" in page
    assert "Tried by nobody" not in page
    assert "| 10 | `SEND_MESSAGE` | leader |  |" in page
    assert "| 37 | `END_TRANSACTION` | unknown | unknown |" in page


@pytest.mark.slow
@pytest.mark.conformance
def test_what_stock_clients_ask_for_is_known(
    cluster: Cluster, record_property: pytest.RecordProperty
) -> None:
    """No code that a producer or consumer sends is answered with "not supported"."""
    found = trio.run(probe, cluster)
    record_property("codes", found)
    states = {each["code"]: each for each in found}

    for code in (10, 310, 320, 11, 361, 12, 14, 15, 29, 30, 31, 33, 34, 35, 36, 38, 41, 42, 46):
        assert states[code]["broker"] in ("leader", "answered"), RequestCode(code).name
    assert states[RequestCode.GET_ROUTEINFO_BY_TOPIC]["namesrv"] == "answered"
