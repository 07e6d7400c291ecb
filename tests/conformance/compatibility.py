"""Makes docs/reference/compatibility.md of what the suite found, and what servers declare of codes.

The suite, when all of it has run, leaves its results in `.cache/conformance/results.json`. It also
holds what servers answer against what their handlers declare. Nothing on the page is written by
hand, so it can't promise what was not seen:

    ./dev test --all tests/conformance && python tests/conformance/compatibility.py

    # after a change of the codes alone; after a run of test_doors.py alone
    python tests/conformance/compatibility.py --codes
    python tests/conformance/compatibility.py --doors

What RocketMQ's own integration tests found is in `stock_tests.json`, which `stock_tests.py` writes.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio
from clients import CLIENTS
from codes import declared
from doors import DOORS, NOTES

from dledger.remoting.codes import RequestCode

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".cache" / "conformance" / "results.json"
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
DOORS_FOUND = ROOT / ".cache" / "conformance" / "doors.json"
STOCK_TESTS = Path(__file__).parent / "stock_tests.json"

PAGE_WIDTH = 120
MARKS = {"passed": "yes", "failed": "**no**", "missing": "?"}

INTRODUCTION = """# Compatibility with RocketMQ's clients

Made by `tests/conformance/compatibility.py` from a run of the conformance suite on {made}; do not
edit. The suite starts two broker groups of three nodes each, and runs the published clients against
them, unmodified:

{versions}

The table shows the result of each client. `tests/conformance/judges.py` says what a *yes* requires;
the drivers beside it say what each client does. A field is empty if the client does not have the
feature, or if its driver does not try it.

Our own client works with the Java clients: each answers requests of the other, and reads its
delayed and transactional messages (`tests/conformance/test_our_client.py`).

Our client and `mqadmin` also work with RocketMQ's own name servers and brokers, 4.9.7 and 5.5.0
(`tests/conformance/test_rocketmq_servers.py`):

- Both versions: sends of each kind, transactions, consumers, topics, groups, routes, progress, and
  queries by key or id.
- 5.5.0: delays and `PopConsumer` as well. RocketMQ 4 refuses delays other than its levels, and our
  client refuses them too.
- RocketMQ stores a message twice if the answer to the first send was lost. So sends are *at least
  once* there.
- Named producers, large bodies in parts, priorities and the commands about Raft need our brokers.

apache/rocketmq-exporter (0.0.3-SNAPSHOT, commit e1ab2dd) reads these servers, too: each of its jobs
tells its figures (`tests/conformance/test_exporter.py`, run on 2026-11-27). It is published as
source only, so the test is skipped where nobody has built it.
"""

GUARDED = """
## Users and encryption

Found on {made} by `tests/conformance/test_doors.py`, at groups of three that enforce rights: one
takes plain text alone, the other TLS alone.
"""

OTHERS = """
## Other clients

The suite does not run these clients.

**rocketmq-client-rust 1.0.0** (crates.io) was run by hand against a broker group of three. Sends
worked: synchronous, one-way, as a batch, delayed and compressed. Push consumers worked, concurrent
and orderly, with tag filters and with a retry. If the leader of the only broker group is killed,
sends go on after the client's next look at its route, as with Java. The client can't read a route
whose `brokerDatas` lack `enableActingMaster`. Name servers of 4.x leave this field out; ours send
it.

**pyrocketmq** (tt67wq, pure Python) was read, not run. Its synchronous consumers look brokers up by
topics named like broker groups; our brokers make these topics at the first start
([broker](broker.md)). Its synchronous orderly consumer locks and pulls, but handles nothing on a
Python before 3.14, with any broker: it calls `locked()` of a `threading.RLock`, which older
versions don't have, and its handler thread ends.
"""

STOCK = """
## RocketMQ's own integration tests

The test classes that RocketMQ {version} publishes (`rocketmq-test`, classifier `tests`) were run
unmodified against three broker groups of three nodes on {made}.
**{passed} of the {tried} tests that fit passed.**
`tests/conformance/stock_tests.py` runs them, and its docstring explains how. A
test is *not applicable* if it needs a feature that is not served here, or a broker within its own
process, for more than a request over the wire could do.
"""

CODES = """
## Request codes

The table shows what each server does with a request code. It is made of what the handlers declare.
The suite checks it: it sends each code to a leader, to a follower and to a name server.

- *answered*: every replica answers.
- *leader*: only the leader answers; followers answer 14.
- *confirmed*: the answer comes once a majority has confirmed that the leader still leads.
- *passed on*: followers pass the request on to the leader, and answer with its answer.
- *`adminAddresses`*: only the addresses that this setting of the server lists may ask, or, at
  brokers, anyone who proves the cluster's secret. Changes of existing topics (17, 18) need this
  too.
- *no*: refused with code 3 (`REQUEST_CODE_NOT_SUPPORTED`) and this reason. Long reasons are below
  the table.
- An empty field: refused with code 3 alone.

| code | name | broker | name server |
|--:|--|--|--|
"""


def render(results: dict[str, Any], guarded: dict[str, Any], tested: dict[str, Any]) -> str:
    """The page without its codes. `results` and `guarded` are what the suite wrote, by the names
    that are used below; `tested` what `stock_tests.py` did."""
    clients = results["clients"]
    versions = "\n".join(f"- {each['title']} {each['version']}" for each in clients)
    lines = [INTRODUCTION.format(made=results["made"], versions=versions)]
    lines += matrix(clients, results["titles"], results["features"])
    lines += remarks(clients, results["titles"], results["features"])
    lines += [*doors(guarded), OTHERS.rstrip("\n"), *stock_tests(tested)]
    return "\n".join(lines) + "\n"


def code_table(codes: Mapping[RequestCode, tuple[str, str]]) -> str:
    """The page's last part: what a broker and a name server do with each code."""
    rows, reasons = [], []
    for code, said in codes.items():
        row = f"| {int(code)} | `{code.name}` | {' | '.join(said)} |"
        if len(row) > PAGE_WIDTH:
            cells = ["no, see below" if each.startswith("no: ") else each for each in said]
            row = f"| {int(code)} | `{code.name}` | {' | '.join(cells)} |"
            reasons += [
                wrapped(f"{int(code)}, {where}: {each.removeprefix('no: ')}")
                for where, each in zip(("broker", "name server"), said, strict=True)
                if each.startswith("no: ")
            ]
        rows.append(row)
    return CODES + "\n".join([*rows, "", *reasons, ""])


def matrix(
    clients: list[dict[str, str]], titles: dict[str, str], features: dict[str, dict[str, Any]]
) -> list[str]:
    """A row for each feature, a column for each client."""
    header = "".join(f" {each['title'].partition(' (')[0]} {each['version']} |" for each in clients)
    lines = [f"| feature |{header}", "|--|" + "--|" * len(clients)]
    for feature, title in titles.items():
        found = features.get(feature, {})
        marks = [MARKS.get(found.get(each["name"], {}).get("outcome"), "") for each in clients]
        if any(marks):
            lines.append(f"| {title} |" + "".join(f" {mark} |" for mark in marks))
    return lines


def remarks(
    clients: list[dict[str, str]], titles: dict[str, str], features: dict[str, dict[str, Any]]
) -> list[str]:
    """Reasons of the suite for each field that is not "yes"."""
    lines = []
    for each in clients:
        for feature, title in titles.items():
            found = features.get(feature, {}).get(each["name"])
            if found and found["outcome"] != "passed":
                reason = found["reason"].splitlines()[0][:160] if found["reason"] else ""
                lines.append(f"- {each['title']} {each['version']}, {title}: {reason}")
    return ["", *lines] if lines else []


def doors(found: dict[str, Any]) -> list[str]:
    """The section of users and encryption, from its heading on."""
    names = ("name", "title", "version")
    clients = [{name: getattr(each, name) for name in names} for each in CLIENTS]
    titles = {name: door.title for name, door in DOORS.items()}
    lines = [GUARDED.format(**found), *matrix(clients, titles, found["doors"])]
    return [*lines, *remarks(clients, titles, found["doors"]), "", NOTES.rstrip("\n")]


def with_doors(page: str, found: dict[str, Any]) -> str:
    """The page with this section in place of its old one, or before that of others."""
    section = "\n".join(doors(found)).lstrip("\n") + "\n\n"
    others = page.index(OTHERS.splitlines()[1])
    heading = page.find(GUARDED.splitlines()[1])
    return page[: others if heading < 0 else heading] + section + page[others:]


def stock_tests(tested: dict[str, Any]) -> list[str]:
    """The section of RocketMQ's own tests, from its heading on."""
    classes: dict[str, dict[str, dict[str, str]]] = tested["classes"]
    passed, failed = (
        sum(len(found.get(outcome, {})) for found in classes.values())
        for outcome in ("passed", "failed")
    )
    head = STOCK.format(**tested, passed=passed, tried=passed + failed)
    lines = [head, "| class | passed | failed | not applicable |", "|--|--:|--:|--:|"]
    remarks, unfit = [], defaultdict(Counter)
    for name, found in classes.items():
        counts = [len(found.get(each, {})) for each in ("passed", "failed", "not applicable")]
        if any(counts[:2]):
            lines.append(f"| `{name}` |" + "".join(f" {count or ''} |" for count in counts))
        for outcome in ("failed", "passed"):
            told = found.get(outcome, {}).items()
            remarks += [f"- `{name}.{test}` {outcome}: {why}" for test, why in told if why]
        for test, why in found.get("not applicable", {}).items():
            unfit[why][name if len(found) == 1 else f"{name}.{test}"] += 1
    lines += ["", *remarks, ""] if remarks else [""]
    since = defaultdict(list)
    for name, day in tested.get("later", {}).items():
        since[day].append(f"`{name}`")
    lines += [f"Run by themselves on {day}: {', '.join(names)}.\n" for day, names in since.items()]
    lines.append("Not applicable, by what they need or do:\n")
    for why, names in sorted(unfit.items()):
        told = ", ".join(f"`{name}` ({count})" for name, count in names.items())
        lines.append(wrapped(f"{why}: {told}"))
    return lines


def wrapped(item: str) -> str:
    """An item of a list, in lines of the page."""
    return textwrap.fill(
        item,
        PAGE_WIDTH,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def with_stock_tests(page: str, tested: dict[str, Any]) -> str:
    """The page with this section in place of its old one."""
    section = "\n".join(stock_tests(tested)).lstrip("\n") + "\n\n"
    begin = page.index(section.splitlines()[0])
    return page[:begin] + section + page[page.index("## ", begin + 2) :]


def main() -> None:
    if "--doors" in sys.argv[1:]:
        PAGE.write_text(with_doors(PAGE.read_text(), json.loads(DOORS_FOUND.read_text())))
        return
    if "--codes" in sys.argv[1:]:
        page = PAGE.read_text().partition(CODES.splitlines(keepends=True)[1])[0].rstrip("\n") + "\n"
    else:
        found = [json.loads(path.read_text()) for path in (RESULTS, DOORS_FOUND, STOCK_TESTS)]
        page = render(*found)
    PAGE.write_text(page + code_table(trio.run(declared)))


if __name__ == "__main__":
    main()
