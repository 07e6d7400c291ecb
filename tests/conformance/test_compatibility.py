"""The compatibility page agrees with the results, with handlers, and with servers' answers."""

from __future__ import annotations

from typing import Any

import trio
from codes import answers, declared, probe
from compatibility import PAGE, code_table, render

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
}


def test_each_result_is_a_field_and_each_failure_has_its_reason() -> None:
    """A feature without results has no row, and one that a client does not try an empty field."""
    guarded = {"made": "2026-11-23", "doors": {}}
    page = render(RESULTS, guarded, {"version": "5", "made": "2026-11-22", "classes": {}})

    assert "run of the conformance suite on 2026-11-21" in page
    assert "| feature | Java 1 | Go 2 |\n|--|--|--|\n| Sends | yes | **no** |" in page
    assert "| Pulls | ? |  |" in page
    assert "- Go 2, Sends: lost one\n" in page
    assert "- Java 1, Pulls: java is not installed\n" in page
    assert "Tried by nobody" not in page


async def test_the_page_says_of_each_code_what_its_handler_declares() -> None:
    """A code that is added, or that needs something else now, changes the page."""
    said = await declared()
    table = code_table(said)

    assert PAGE.read_text().endswith(table), "run tests/conformance/compatibility.py --codes"
    assert said[RequestCode.SEND_MESSAGE] == ("leader", "")
    assert "| 30 | `GET_MAX_OFFSET` | leader, confirmed |  |\n" in table
    assert "| 17 | `UPDATE_AND_CREATE_TOPIC` | leader, passed on |  |\n" in table


async def test_what_stock_clients_ask_for_is_served() -> None:
    """Codes of producers and consumers are never answered with "not supported"."""
    said = await declared()

    for code in (10, 310, 320, 11, 361, 12, 14, 15, 29, 30, 31, 33, 34, 35, 36, 38, 41, 42, 46):
        assert not said[RequestCode(code)][0].startswith("no"), RequestCode(code).name
    assert said[RequestCode.GET_ROUTEINFO_BY_TOPIC][1] == "answered"


def test_servers_answer_each_code_as_their_handlers_declare(cluster: Cluster) -> None:
    """A leader, a follower and a name server answer each code as its handler declares it."""
    said = trio.run(declared)
    found = trio.run(probe, cluster)

    assert found == {
        code: (*answers(broker), answers(namesrv)[0]) for code, (broker, namesrv) in said.items()
    }
