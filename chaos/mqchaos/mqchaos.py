"""The `mqchaos` command: break a cluster on purpose, by name and seed, and have it audited."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import cyclopts
from rich.console import Console

from dledger.errors import ConfigError
from dledger.program.console import let_reader_leave
from dledger.program.extras import require
from dledger.program.helping import FlowingHelp
from dledger.program.whole import Whole
from mqchaos import limits
from mqchaos.attach.attached import Attach
from mqchaos.attach.hooks import read_hooks
from mqchaos.attach.performing import perform_attached
from mqchaos.cluster.access import Identity
from mqchaos.command_line import refuse_outside, run_app, run_command
from mqchaos.faults.machine import all_lacking
from mqchaos.listing import listed, places, show
from mqchaos.run import again
from mqchaos.run.again import order_of, own, plan_of
from mqchaos.run.covered import markdown
from mqchaos.run.covering import cover, renew
from mqchaos.run.load.workload import WORKLOADS
from mqchaos.run.others.stock import stock_lacks
from mqchaos.run.perform import perform
from mqchaos.run.planned import Made, Planned
from mqchaos.run.scenarios import RANDOM, SCENARIOS, planned_of, random_plan
from mqchaos.run.soak import plans
from mqchaos.run.soak import soak as soaking

Directory: TypeAlias = Annotated[Path, cyclopts.Parameter(name="--dir")]
Times: TypeAlias = Annotated[Whole, cyclopts.Parameter(name=["--kills", "--times"])]

Network: TypeAlias = Literal["proxy", "namespaces"]
Disks: TypeAlias = Literal["folders", "own"]
Clocks: TypeAlias = Literal["orders", "processes"]
History: TypeAlias = Literal["lines", "parquet"]

ATTACHED_TOPIC = "Attached"


@cyclopts.Parameter(name="*")
@dataclass(frozen=True, slots=True)
class Choices:
    """The options of every new run where there is a choice of what it is made of.

    Parameters
    ----------
    network
        How links are broken: by a proxy, or by the kernel, between namespaces (root only).
    disks
        Where replicas lie; own (root only): each on a file system of its own.
    clocks
        How far a clock fault reaches: to where the broker asks the time, or to its whole process
        (libfaketime).
    history
        The history's format; parquet takes a tenth of the bytes, and is packed during the run.
    busy
        How many busy processes run beside the servers, as on a shared machine.
    tls
        All ports take TLS alone, with certificates of the cluster's own authority.
    users
        Rights are enforced: clients sign as a user, the harness by the cluster's secret.
    """

    network: Network = "proxy"
    disks: Disks = "folders"
    clocks: Clocks = "orders"
    history: History = "lines"
    busy: Whole = 0
    tls: bool = False
    users: bool = False

    def made(self) -> Made:
        """The choices as a plan has them. Raises ConfigError for more than the machine can bear."""
        refuse_outside("busy", self.busy, 0, limits.BUSY_MAX)
        return Made(
            self.network == "namespaces",
            self.disks == "own",
            self.clocks == "processes",
            self.history == "parquet",
            self.busy,
            self.tls,
            self.users,
        )


PLAIN = Choices()

app = cyclopts.App(
    name="mqchaos",
    help=(
        "Inject faults into a broker group, and audit its replicas afterwards.\n\n"
        "For example:\n\n"
        "    mqchaos list\n"
        "    mqchaos run --scenario leader-kill --seed 7 --kills 2 --dir /tmp/run\n"
        "    mqchaos replay /tmp/run --dir /tmp/again"
    ),
    help_format="plaintext",
    help_formatter=FlowingHelp(),
)


@app.command(name="list")
def list_scenarios() -> None:
    """List the scenarios, the workloads and the faults, and what this machine lacks for a fault.

    For example:

        mqchaos list
    """
    show(listed())


@app.command
def failpoints() -> None:
    """List the failpoints: places in the code at which a node can be stopped or held.

    For example:

        mqchaos failpoints
    """
    show([places()])


@app.command
def run(
    *,
    scenario: str,
    directory: Directory,
    seed: Whole = 1,
    kills: Times = 5,
    duration: float = 30.0,
    workload: str = "keyed",
    choices: Choices = PLAIN,
) -> int:
    """Run a scenario; exit status 0 only if every property holds and no bound was exceeded.

    For example:

        mqchaos run --scenario leader-kill --seed 7 --kills 2 --dir /tmp/run

    Parameters
    ----------
    scenario
        A scenario of `mqchaos list`, or random.
    directory
        A new or empty directory: history, replicas, logs and reports stay there.
    seed
        The same seed makes the same plan.
    kills
        How many faults there are, one after the other; how many rounds of a restart.
    duration
        Length of a random schedule in seconds.
    workload
        A workload of `mqchaos list`.
    """
    made = choices.made()
    planned = _planned(scenario, seed, kills, duration, workload, made)
    return run_command(partial(_perform, planned, directory))


@app.command
def replay(*sources: Path, directory: Directory, busy: Whole | None = None) -> int:
    """Repeat the plan of another run; the exit status is that of `run`.

    Several plans are repeated in order, until one has a violation. The reports of the others stay.

    For example:

        mqchaos replay /tmp/run --dir /tmp/again

    Parameters
    ----------
    sources
        The other runs' directories, or plans.
    directory
        A new or empty directory for all that comes of it.
    busy
        As of `run`; by default as in the plan.
    """
    require("the audit at the end of a run", "spark")
    if not sources:
        raise ConfigError("name the run or the plan to replay")
    refuse_outside("busy", busy or 0, 0, limits.BUSY_MAX)
    some = [plan_of(source, busy) for source in sources]
    if len(some) == 1:
        return run_command(partial(_perform, some[0], directory))
    return run_command(partial(soaking, own(directory), math.inf, some))


@app.command
def shrink(
    source: Path,
    /,
    *,
    directory: Directory,
    repeat: Whole = 2,
    runs: Whole = limits.SHRINK_RUNS_MAX,
) -> int:
    """Make the plan of a run with a violation smaller, as long as the violation stays.

    For example:

        mqchaos shrink /tmp/run --dir /tmp/smaller

    Parameters
    ----------
    source
        The run's directory, or a plan.json.
    directory
        A new or empty directory: the smallest plan that failed is left there, with its run.
    repeat
        How often a plan is run before it is taken for one that holds.
    runs
        How many runs there are at most.
    """
    require("the audit at the end of a run", "spark")
    for name, value, most in (("repeat", repeat, 100), ("runs", runs, limits.SHRINK_RUNS_MAX)):
        refuse_outside(name, value, 1, most)
    return run_command(partial(again.shrink, source, own(directory), repeat, runs))


@app.command
def soak(
    *,
    directory: Directory,
    hours: float,
    seed: Whole = 1,
    duration: float = 60.0,
    workload: str | None = None,
    choices: Choices = PLAIN,
) -> int:
    """Run random schedules, a new seed each, until time is up; stop at the first violation.

    For example:

        mqchaos soak --hours 2 --seed 1000 --dir /tmp/soak

    Parameters
    ----------
    directory
        A new or empty directory: reports, one page about all of them, and the run that failed.
    hours
        How long; a run that has begun is finished.
    seed
        The first one.
    duration
        Length of each schedule in seconds.
    workload
        A workload of `mqchaos list`; by default all in turn.
    """
    require("the audit at the end of a run", "spark")
    refuse_outside("seed", seed, 0, limits.SEED_MAX)
    refuse_outside("hours", hours, 0.0, limits.SOAK_HOURS_MAX)
    refuse_outside("duration", duration, 1.0, limits.DURATION_S_MAX)
    chosen = [_known("workload", workload, WORKLOADS)] if workload else _workloads_here()
    made = choices.made()
    some = plans(seed, duration, chosen, made, all_lacking(namespaces=made.namespaces))
    return run_command(partial(soaking, own(directory), hours, some))


@app.command
def coverage(*soaks: Path, page: Path | None = None) -> None:
    """Add up soaks: tables of fault x workload, fault x property and workload x property.

    The tables are Markdown. Kinds that were never run have their rows, too.

    For example:

        mqchaos coverage /tmp/soak

    Parameters
    ----------
    soaks
        Files soak.jsonl, each once.
    page
        A Markdown file: the tables are written between its marks, instead of printed.
    """
    covered = cover(soaks)
    if page is None:
        print(markdown(covered), end="")
    else:
        renew(page, covered)


@app.command
def attach(
    *,
    namesrv: Annotated[str, cyclopts.Parameter(name=["--namesrvAddr", "-n"])],
    hooks: Path,
    directory: Directory,
    fault: str | None = None,
    times: Times = 5,
    on: Literal["leader", "node"] = "leader",
    seed: Whole = 1,
    topic: str = "",
    queues: Whole = 4,
    rate: float = 1_000.0,
    settle: float = limits.SETTLE_S,
    away: float | None = None,
    tls: str = "",
    tls_cert: str = "",
    tls_key: str = "",
    user: str = "",
    password_file: str = "",
) -> int:
    """Inject faults into a running cluster with your own commands, and judge what is read back.

    The cluster may be Apache RocketMQ's. Exit status 0 if all acknowledged messages were read back
    as they were sent, in order and once, and no exception reached the application; 1 if not.

    For example:

        mqchaos attach -n 127.0.0.1:9876 --hooks hooks.toml --dir /tmp/attached

    Parameters
    ----------
    namesrv
        Its name servers, host:port;host:port.
    hooks
        A file that names the nodes of a broker group, and the commands that hurt and heal each
        (docs/how-to/attach.md).
    directory
        A new or empty directory: history, logs and report stay there.
    fault
        The hook to use; by default the first that all nodes have.
    times
        How often, one after the other.
    on
        The node that the fault hits: the leader, or any node.
    seed
        Draws the times, and the nodes.
    topic
        Is made if it is not there. By default our own client has a new one, and a program of the
        hooks file "Attached". Messages of other runs in it would be taken for phantoms.
    queues
        Of that topic.
    rate
        Messages a second; of our own client.
    settle
        Seconds from when sends go on to the next fault.
    away
        Seconds until a node is healed; by default drawn anew each time.
    tls
        Reach servers by TLS: a file of the authorities, or system for the machine's.
    tls_cert
        A certificate of these clients, for servers that demand one.
    tls_key
        Its key.
    user
        The user that clients and the harness sign as; it needs the right to make the topic.
    password_file
        The file of its password.
    """
    read = read_hooks(hooks)
    chosen = _known("fault", fault or read.faults()[0], read.faults())
    for name, value, least, most in (
        ("times", times, 1, limits.KILLS_MAX),
        ("queues", queues, 1, limits.QUEUES_MAX),
        ("rate", rate, 1.0, 1e6),
        ("seed", seed, 0, limits.SEED_MAX),
        ("settle", settle, 0.0, limits.DURATION_S_MAX),
        ("away", away or 0.0, 0.0, limits.DURATION_S_MAX),
    ):
        refuse_outside(name, value, least, most)
    own_topic = f"{ATTACHED_TOPIC}-{os.urandom(4).hex()}"
    order = Attach(
        namesrv_addr=namesrv,
        hooks=read,
        fault=chosen,
        times=times,
        on=on,
        seed=seed,
        topic=topic or (own_topic if read.workload is None else ATTACHED_TOPIC),
        queues=queues,
        rate_per_s=rate,
        send_timeout_s=limits.RANDOM_SEND_TIMEOUT_S,
        settle_s=settle,
        away_s=limits.AWAY_S if away is None else (away, away),
        identity=Identity(tls, tls_cert, tls_key, user, password_file),
    )
    order.identity.access()  # says now what can't be read
    words = ["mqchaos attach -n", namesrv, f"--hooks {hooks} --fault {chosen} --times {times}"]
    given = (("tls", tls), ("tls-cert", tls_cert), ("tls-key", tls_key), ("user", user))
    words += [f"--{name} {value}" for name, value in given if value]
    words += [f"--password-file {password_file}"] if password_file else []
    words += [f"--on {on} --seed {seed} --dir NEW-DIR"]
    return run_command(partial(_attach, order, own(directory), " ".join(words)))


async def _attach(order: Attach, directory: Path, replay: str) -> int:
    console = Console()
    report = await perform_attached(order, directory, replay, console)
    console.print(f"report: {directory / 'report' / 'report.html'}", soft_wrap=True)
    return 0 if report.holds else 1


def _planned(
    scenario: str, seed: int, kills: int, duration: float, workload: str, made: Made
) -> Planned:
    """The run that the command line asks for, decided in full. Raises ConfigError, by name, for an
    option that can't be followed."""
    require("the audit at the end of a run", "spark")
    _known("scenario", scenario, [*SCENARIOS, RANDOM])
    _known("workload", workload, WORKLOADS)
    refuse_outside("seed", seed, 0, limits.SEED_MAX)
    refuse_outside("kills", kills, 1, limits.KILLS_MAX)
    refuse_outside("duration", duration, 1.0, limits.DURATION_S_MAX)
    if scenario == RANDOM:
        return random_plan(seed, duration, workload, made, all_lacking(namespaces=made.namespaces))
    return planned_of(SCENARIOS[scenario], seed, kills, workload, made)


async def _perform(planned: Planned, directory: Path) -> int:
    require("the audit at the end of a run", "spark")
    order, console = order_of(planned, directory), Console()
    report = await perform(order, console)
    console.print(f"report: {order.report / 'report.html'}", soft_wrap=True)
    console.print(f"replay: {order.replay}", soft_wrap=True)
    return 0 if report.holds else 1


def _workloads_here() -> list[str]:
    """All but those whose stock client is not there."""
    return [
        workload.name
        for workload in WORKLOADS.values()
        if not workload.stock or stock_lacks(workload.stock) is None
    ]


def _known(what: str, name: str, names: Collection[str]) -> str:
    if name not in names:
        raise ConfigError(f"there is no {what} {name!r}; there are {', '.join(names)}")
    return name


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` None means those of the process."""
    let_reader_leave()
    sys.exit(run_app(app, arguments))


if __name__ == "__main__":
    main()
