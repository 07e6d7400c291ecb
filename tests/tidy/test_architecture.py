"""The architecture, held by a walk over all imports: who may know whom, and what stays pure."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Source

# A package may import itself and these of ours.
ALLOWED = {
    "dledger": set(),
    "broker": {"dledger"},
    "namesrv": {"dledger"},
    "client": {"dledger"},
    "chaos": {"client", "dledger"},
    "spark": {"client", "dledger"},
}

# Inside the foundation: the wire and the log know nothing of each other.
FORBIDDEN_INSIDE = {
    "dledger.remoting": {"dledger.log", "dledger.raft", "dledger.net", "dledger.ledger"},
    "dledger.log": {"dledger.remoting", "dledger.raft", "dledger.net", "dledger.ledger"},
    "dledger.raft": {"dledger.remoting", "dledger.net", "dledger.ledger"},
    "dledger.net": {"dledger.log", "dledger.raft", "dledger.ledger"},
}

# Faces for users that nothing of ours needs to import.
PUBLIC = {"client.blocking"}

# The one name that wire and log share: what counts as bytes.
BUFFERS = {"dledger.remoting.command", "dledger.remoting.command.Buffer"}

# Modules that decide: `now` and bytes come in, values go out. A name with a dot at its end stands
# for everything below it.
PURE = [
    "dledger.checksum",
    "dledger.errors",
    "dledger.limits",
    "dledger.log.entry",
    "dledger.log.head",
    "dledger.log.recovery",
    "dledger.log.retention",
    "dledger.log.scan",
    "dledger.net.room",
    "dledger.raft.configuration",
    "dledger.raft.messages",
    "dledger.raft.pacing",
    "dledger.raft.seat",
    "dledger.raft.state_copy",
    "dledger.raft.transfer",
    "dledger.remoting.bodies",
    "dledger.remoting.codec",
    "dledger.remoting.codes",
    "dledger.remoting.command",
    "dledger.remoting.framing",
    "dledger.remoting.headers.",
    "dledger.remoting.json_dialect",
    "dledger.remoting.names",
    "dledger.remoting.numbers",
    "dledger.remoting.record.",
    "dledger.remoting.rocketmq_header",
    "dledger.remoting.unavailable",
    "dledger.settings",
    "broker.leader.assignments",
    "broker.state.aside",
    "broker.state.control",
    "broker.state.kept",
    "broker.state.dedup",
    "broker.requests.filters",
    "broker.leader.delays",
    "broker.leader.deliveries",
    "broker.leader.resends",
    "broker.leader.transactions",
    "broker.state.indexing",
    "broker.state.attributes",
    "broker.state.moves",
    "broker.state.waiting",
    "broker.state.locks",
    "broker.state.machine",
    "broker.requests.membership",
    "broker.requests.readers",
    "broker.state.offsets",
    "broker.requests.rates",
    "broker.requests.statistics",
    "broker.state.subscriptions",
    "broker.state.topics",
    "namesrv.kv",
    "namesrv.registration",
    "namesrv.routes",
    "namesrv.topics",
    "client.batching",
    "client.delays",
    "client.exchange",
    "client.lookup",
    "client.progress",
    "client.retry",
    "client.routing",
    "client.running_info",
    "client.subscriptions",
    "chaos.chart",
    "chaos.layout",
    "chaos.measure",
    "chaos.schedule.",
    "chaos.workload",
    "spark.judge.evidence",
    "spark.planning",
]
ROOT_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
IMPURE = {"trio", "anyio", "asyncio", "socket", "select", "time", "random", "secrets", "threading"}


def our_imports(module: Source) -> set[str]:
    return {name for name in module.imports if name.partition(".")[0] in ALLOWED}


def test_packages_meet_where_the_design_says(modules: list[Source]) -> None:
    """broker, namesrv and client never import each other; the foundation imports none of them."""
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for name in our_imports(module)
        if name.partition(".")[0] not in ALLOWED[module.package] | {module.package}
    ]

    assert not wrong, chr(10).join(wrong)


def test_the_foundations_parts_keep_their_order(modules: list[Source]) -> None:
    """Wire and log are independent; Raft stands on the log, the network on the wire."""
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for part, forbidden in FORBIDDEN_INSIDE.items()
        if module.name == part or module.name.startswith(f"{part}.")
        for name in our_imports(module) - BUFFERS
        if any(name == other or name.startswith(f"{other}.") for other in forbidden)
    ]

    assert not wrong, chr(10).join(wrong)


def test_only_the_raft_adapter_knows_its_engine(modules: list[Source]) -> None:
    """PySyncObj can be replaced by changing one folder."""
    users = {
        module.name
        for module in modules
        if any(name.partition(".")[0] == "pysyncobj" for name in module.imports)
    }

    assert {name for name in users if not name.startswith("dledger.raft")} == set()


@pytest.mark.parametrize("pure", PURE)
def test_modules_that_decide_do_no_io(modules: list[Source], pure: str) -> None:
    """No clock, no randomness, no event loop, no socket: they can be tested as values."""
    meant = [
        module
        for module in modules
        if module.name == pure.rstrip(".") or (pure.endswith(".") and module.name.startswith(pure))
    ]
    wrong = [
        f"{module.name} imports {name}"
        for module in meant
        for name in module.imports
        if name.partition(".")[0] in IMPURE
    ]

    assert meant, f"{pure} is gone: take it off the list"
    assert not wrong, chr(10).join(wrong)


def test_nothing_from_outside_is_unpickled_or_evaluated(modules: list[Source]) -> None:
    """A peer's bytes are data, never code."""
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for name in module.imports
        if name.partition(".")[0] in {"pickle", "cPickle", "dill", "cloudpickle", "marshal"}
    ]

    assert not wrong, chr(10).join(wrong)


def test_every_module_is_used(modules: list[Source], others: list[Source]) -> None:
    """A module that nothing imports and that is no program is dead."""
    scripts = tomllib.loads(ROOT_PYPROJECT.read_text())["project"]["scripts"].values()
    started = {script.partition(":")[0] for script in scripts}
    used = {name for module in [*modules, *others] for name in module.imports}
    used |= {parent for name in used for parent in parents(name)}
    dead = [
        module.name
        for module in modules
        if module.name not in used | started | PUBLIC
        and not module.name.startswith("client.commands.")  # loaded by name when typed
        and 'if __name__ == "__main__":' not in module.text
    ]

    assert not dead, chr(10).join(dead)


def parents(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}
