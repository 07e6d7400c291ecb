"""The tables of `mqchaos list` and `mqchaos failpoints`: everything that can be had, and how.

A fault needs tools of the machine, and a workload another client. Rows say what is not available
here, and why.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from dledger.failpoints import PLACES
from mqchaos.faults.fault import FAULTS
from mqchaos.faults.machine import all_lacking, machine_lacks
from mqchaos.network.needs import no_namespaces
from mqchaos.run.load.workload import WORKLOADS
from mqchaos.run.others.stock import stock_lacks
from mqchaos.run.scenarios import RANDOM, SCENARIOS


def show(tables: Iterable[Table]) -> None:
    """Print tables to standard output, one below the other."""
    console = Console()
    for table in tables:
        console.print(table)


def listed() -> list[Table]:
    """The scenarios, the workloads, the faults, and the kinds of links."""
    scenarios = Table("scenario", "what happens")
    for scenario in SCENARIOS.values():
        scenarios.add_row(scenario.name, scenario.story)
    scenarios.add_row(RANDOM, "all faults that this machine can do, drawn from the seed")
    workloads = Table("workload", "what clients do", "here")
    for workload in WORKLOADS.values():
        lacks = stock_lacks(workload.stock) if workload.stock else None
        workloads.add_row(workload.name, workload.story, _can(lacks))
    faults = Table("fault", "what it does", "here")
    for fault in FAULTS.values():
        lacks = machine_lacks(fault.kind.name)
        faults.add_row(fault.kind.name, f"a server {fault.kind.words}", _can(lacks))
    return [scenarios, workloads, faults, _networks()]


def _networks() -> Table:
    """Kinds of links that this machine can have, and faults that can't be injected into them."""
    networks = Table("network", "what links are", "here")
    for name, how in (
        ("proxy", "connections through a process of ours"),
        (
            "namespaces",
            "the kernel's, each server in a network namespace, at an address, of its own",
        ),
    ):
        of_kernel = name == "namespaces"
        lacks = no_namespaces() if of_kernel else None
        some = all_lacking(namespaces=of_kernel) if lacks is None else {}
        words = [_can(lacks), *(f"{fault} is not available: {why}" for fault, why in some.items())]
        networks.add_row(name, how, "\n".join(words))
    return networks


def places() -> Table:
    """The table of all failpoints: name, who comes by, why, and what has happened then."""
    table = Table("place", "comes by", "because of", "what has happened, and what has not")
    for place in PLACES.values():
        table.add_row(place.name, place.by.value, place.when.value, place.words)
    return table


def _can(lacks: str | None) -> str:
    return "can be done" if lacks is None else f"not available: {lacks}"
