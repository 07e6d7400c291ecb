"""Makes docs/compatibility.md out of what the suite found: client by feature, and request codes.

The suite, when all of it has run, leaves its results in `.cache/conformance/results.json`. Nothing
on the page is written by hand, so it can't promise what was not seen:

    ./dev test --all tests/conformance && python tests/conformance/compatibility.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / ".cache" / "conformance" / "results.json"
PAGE = ROOT / "docs" / "compatibility.md"

MARKS = {"passed": "yes", "failed": "**no**", "missing": "?"}

INTRODUCTION = """# Compatibility with stock RocketMQ clients

Made by `tests/conformance/compatibility.py` from a run of the conformance suite on {made}; do not
edit. The suite starts two groups of three brokers, and runs the published clients, unmodified,
against them: {versions}.

What is behind a *yes* stands in `tests/conformance/judges.py`; what the drivers do, beside it. An
empty field: the client does not have the feature, or its driver does not try it.

Our own client and the Java ones also answer, delay and commit what the other reads:
`tests/conformance/test_our_client.py`.
"""

READ = """
## Read, not run

What the sources of other clients say about working with this broker.

- pyrocketmq (tt67wq, pure Python): its synchronous consumers look brokers up by topics named like
  broker groups; those are made at the first start (`docs/broker.md`). Its synchronous orderly
  consumer locks and pulls, and handles nothing on a Python before 3.14, whatever the broker: it
  asks a `threading.RLock` whether it is `locked()`, which older ones can't say, and the thread that
  would handle messages ends by that.
- rocketmq-client-rust 1.0.0: it can't read a route whose `brokerDatas` lack `enableActingMaster`,
  which 4.x name servers leave out; ours say it.
"""

CODES = """
## Request codes

Each code was sent, without fields, to a leading broker and to the name server. *answered*: it is
known there (the probe itself may be refused for its missing fields). *leader*: known, and for the
leader alone; followers answer 14. *no*: refused with code 3 (`REQUEST_CODE_NOT_SUPPORTED`) and this
reason; *unknown*: with that code only.
"""


def render(results: dict[str, Any]) -> str:
    """The page. `results` is what the suite wrote, by the names that are used below."""
    clients = results["clients"]
    versions = ", ".join(f"{each['title']} {each['version']}" for each in clients)
    lines = [INTRODUCTION.format(made=results["made"], versions=versions)]
    lines += matrix(clients, results["titles"], results["features"])
    lines += remarks(clients, results["titles"], results["features"])
    lines += [READ.rstrip("\n"), CODES, "| code | name | broker | name server |", "|--:|--|--|--|"]
    for each in results["codes"]:
        states = [each["broker"], each["namesrv"]]
        if states != ["unknown", "unknown"]:
            states = [state.replace("unknown", "") for state in states]
        lines.append(f"| {each['code']} | `{each['name']}` | {' | '.join(states)} |")
    return "\n".join(lines) + "\n"


def matrix(
    clients: list[dict[str, str]], titles: dict[str, str], features: dict[str, dict[str, Any]]
) -> list[str]:
    """A row for each feature, a column for each client."""
    header = "".join(f" {each['title']} {each['version']} |" for each in clients)
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
    """Why a field is no "yes", as the suite found it."""
    lines = []
    for each in clients:
        for feature, title in titles.items():
            found = features.get(feature, {}).get(each["name"])
            if found and found["outcome"] != "passed":
                reason = found["reason"].splitlines()[0][:160] if found["reason"] else ""
                lines.append(f"- {each['title']} {each['version']}, {title}: {reason}")
    return ["", *lines] if lines else []


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
