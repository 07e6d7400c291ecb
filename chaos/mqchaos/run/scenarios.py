"""The scenarios that can be run by name: what is broken, how often, under which load."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mqchaos.faults.generator import (
    Plan,
    Uniform,
    blind,
    in_turn,
    main_job,
    rolling,
    strikes,
    transfers,
)
from mqchaos.faults.kinds import (
    BRIDGE,
    CUT_CLIENTS,
    CUT_NAMESRV,
    DEAF,
    ISLAND,
    KILL,
    KILL_ALL,
    KILL_MAJORITY,
    KILL_NAMESRV,
    LOSSY,
    LOST_FILE,
    MUTE,
    NARROW,
    PARTITION,
    PAUSE,
    RESET,
    RING,
    ROT,
    SLOW,
    STORM,
    WIPE,
)
from mqchaos.faults.schedule import draw
from mqchaos.faults.targets import Target
from mqchaos.limits import RANDOM_RATE_PER_S, RANDOM_SEND_TIMEOUT_S
from mqchaos.run.planned import Planned

NODES = 3


@dataclass(frozen=True, slots=True)
class Scenario:
    """`plan` makes the steps from the number of faults (or rounds) and the seed's draws."""

    name: str
    story: str
    plan: Callable[[int, Uniform], Plan]
    rate_per_s: float = 2_000.0
    nodes: int = 3
    namesrvs: int = 1
    network: bool = False
    """Whether links pass the proxy."""


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "leader-kill",
            "SIGKILL whoever leads, start it again, wait until it is level; under steady sends",
            partial(strikes, KILL, Target.LEADER),
        ),
        Scenario(
            "follower-kill",
            "SIGKILL a follower, start it again, wait until it is level; under steady sends",
            partial(strikes, KILL, Target.FOLLOWER),
        ),
        Scenario(
            "leader-pause",
            "SIGSTOP whoever leads until another does, and SIGCONT: it does not know of it",
            partial(strikes, PAUSE, Target.LEADER),
        ),
        Scenario(
            "rolling-restart",
            "every node in turn is told to stop (SIGTERM) and started again, as for a new version",
            partial(rolling, NODES),
        ),
        Scenario(
            "majority-kill",
            "SIGKILL whoever leads and another at once: nobody serves until they are back",
            partial(strikes, KILL_MAJORITY, Target.MAJORITY),
        ),
        Scenario(
            "all-kill",
            "SIGKILL all three nodes at once, start them again",
            partial(strikes, KILL_ALL, Target.ALL),
        ),
        Scenario(
            "restart-storm",
            "SIGKILL all three nodes, and again three times while they start",
            partial(strikes, STORM, Target.ALL),
        ),
        Scenario(
            "transfer-storm",
            "leadership is handed over, and on, and on, up to twenty times a second",
            transfers,
        ),
        Scenario(
            "namesrv-kill",
            "SIGKILL one of two name servers; started again it knows no route",
            partial(strikes, KILL_NAMESRV, Target.NAMESRV),
            namesrvs=2,
        ),
        Scenario(
            "namesrvs-kill",
            "SIGKILL all name servers, and then the leader: clients find the next one without",
            blind,
            namesrvs=2,
        ),
        Scenario(
            "damaged-disks",
            "a node loses its disk, then a bit of its log, then a file; its group mends it",
            partial(
                in_turn,
                [
                    (kind, target)
                    for target in (Target.LEADER, Target.FOLLOWER)
                    for kind in (WIPE, ROT, LOST_FILE)
                ],
            ),
        ),
        Scenario(
            "leader-isolated",
            "whoever leads is cut off from its group, and the next time from clients as well",
            partial(in_turn, [(PARTITION, Target.LEADER), (ISLAND, Target.LEADER)]),
            network=True,
        ),
        Scenario(
            "partition-halves",
            "five nodes: the leader and another don't hear the other three, clients reach all",
            partial(strikes, PARTITION, Target.MINORITY),
            nodes=5,
            network=True,
        ),
        Scenario(
            "partition-ring",
            "five nodes, each of which hears two others only",
            partial(strikes, RING, Target.ALL),
            nodes=5,
            network=True,
        ),
        Scenario(
            "bridge",
            "the leader and a follower don't hear each other, and the third hears both",
            partial(strikes, BRIDGE, Target.LEADER),
            network=True,
        ),
        Scenario(
            "one-way",
            "nothing that the leader says reaches its group, and the next time the reverse",
            partial(in_turn, [(MUTE, Target.LEADER), (DEAF, Target.LEADER)]),
            network=True,
        ),
        Scenario(
            "clients-cut",
            "clients can't reach the leader, which goes on leading; its group hears it well",
            partial(strikes, CUT_CLIENTS, Target.LEADER),
            network=True,
        ),
        Scenario(
            "namesrv-cut",
            "no broker reaches a name server",
            partial(strikes, CUT_NAMESRV, Target.ALL),
            network=True,
        ),
        Scenario(
            "slow-links",
            "all links are slow, then lossy, then narrow; then all connections are reset",
            partial(in_turn, [(kind, Target.ALL) for kind in (SLOW, LOSSY, NARROW, RESET)]),
            network=True,
        ),
    )
}

RANDOM = "random"


def planned_of(scenario: Scenario, seed: int, count: int, workload: str = "keyed") -> Planned:
    """A scenario with a seed's draws."""
    return Planned(
        scenario.name,
        seed,
        scenario.plan(count, random.Random(seed).uniform),
        scenario.rate_per_s,
        workload=workload,
        nodes=scenario.nodes,
        namesrvs=scenario.namesrvs,
        network=scenario.network,
        drawn_by=_command(scenario.name, seed, f"--kills {count}", workload),
    )


def random_plan(seed: int, duration_s: float, workload: str = "keyed") -> Planned:
    """All faults that there are, drawn by a seed, for about so many seconds."""
    return Planned(
        RANDOM,
        seed,
        draw(duration_s, random.Random(seed).uniform, NODES),
        RANDOM_RATE_PER_S,
        workload=workload,
        nodes=NODES,
        namesrvs=2,
        network=True,
        strict=False,
        send_timeout_s=RANDOM_SEND_TIMEOUT_S,
        drawn_by=_command(RANDOM, seed, f"--duration {duration_s}", workload),
    )


def _command(scenario: str, seed: int, how_much: str, workload: str) -> str:
    words = ["mqchaos run --scenario", scenario, f"--seed {seed}", how_much]
    words += [] if workload == "keyed" else [f"--workload {workload}"]
    return " ".join([*words, "--dir NEW-DIR"])


MAIN_JOB = Scenario(
    "main-job",
    "the leader is killed at 1/3 of the sends and back at 1/2, a follower is killed at 2/3",
    lambda _, uniform: main_job(uniform),
)


def library_lines() -> bytes:
    """Text that every machine with Python has: the standard library's own top-level sources."""
    folder = Path(sysconfig.get_path("stdlib"))
    return b"\n".join(path.read_bytes() for path in sorted(folder.glob("*.py")))
