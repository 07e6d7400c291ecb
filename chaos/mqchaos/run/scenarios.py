"""The scenarios that can be run by name: what is broken, how often, under which load."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec.structs import asdict, replace

from dledger.failpoints import When
from mqchaos.faults import kinds
from mqchaos.faults.generator import (
    Plan,
    Uniform,
    at_places,
    blind,
    calm,
    in_turn,
    main_job,
    renewals,
    rolling,
    strikes,
    transfers,
)
from mqchaos.faults.kinds import KINDS, Kind
from mqchaos.faults.schedule import draw
from mqchaos.faults.targets import Target
from mqchaos.limits import (
    PROXIED_SHARE,
    RANDOM_RATE_PER_S,
    RANDOM_SEND_TIMEOUT_S,
    SEGMENT_BYTES,
    SHORT_SEGMENT_BYTES,
)
from mqchaos.run.load.workload import WORKLOADS
from mqchaos.run.planned import PLAIN, Made, Planned

NODES = 3
_WITH_WHOLE_LOGS = frozenset(When) - {When.RETENTION, When.COPY, When.EMPTY}
"""Places that nodes reach while nothing is removed from the log: a judge wants to see all of it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run that can be asked for by name. `plan` makes the steps from the number of faults (or
    rounds) and the seed's draws."""

    name: str
    story: str
    plan: Callable[[int, Uniform], Plan]
    rate_per_s: float = 2_000.0
    nodes: int = 3
    namesrvs: int = 1
    network: bool = False
    """Whether links can be broken."""
    segment_bytes: int = SEGMENT_BYTES
    disks: bool = False
    """Whether nodes have file systems of their own, for what only root can do to one."""
    guarded: bool = False
    """Whether ports take TLS alone, and clients are a user."""


def _in_turn(targets: Sequence[Target], *struck: Kind) -> Callable[[int, Uniform], Plan]:
    """Each kind in turn on the first target, and then on the next one."""
    return partial(in_turn, [(kind, target) for target in targets for kind in struck])


_ON_BOTH = (Target.LEADER, Target.FOLLOWER)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "calm",
            "no fault at all, five seconds at a time: what clients and tools do is enough",
            calm,
        ),
        Scenario(
            "leader-kill",
            "SIGKILL the leader, start it again, wait until it is level; under steady sends",
            partial(strikes, kinds.KILL, Target.LEADER),
        ),
        Scenario(
            "follower-kill",
            "SIGKILL a follower, start it again, wait until it is level; under steady sends",
            partial(strikes, kinds.KILL, Target.FOLLOWER),
        ),
        Scenario(
            "leader-pause",
            "SIGSTOP the leader until another node leads, and SIGCONT: it does not know of it",
            partial(strikes, kinds.PAUSE, Target.LEADER),
        ),
        Scenario(
            "rolling-restart",
            "every node in turn is told to stop (SIGTERM) and started again, as for a new version",
            partial(rolling, NODES),
        ),
        Scenario(
            "majority-kill",
            "SIGKILL the leader and another at once: nobody serves until they are back",
            partial(strikes, kinds.KILL_MAJORITY, Target.MAJORITY),
        ),
        Scenario(
            "all-kill",
            "SIGKILL all three nodes at once, start them again",
            partial(strikes, kinds.KILL_ALL, Target.ALL),
        ),
        Scenario(
            "restart-storm",
            "SIGKILL all three nodes, and again three times while they start",
            partial(strikes, kinds.STORM, Target.ALL),
        ),
        Scenario(
            "transfer-storm",
            "leadership is handed over, and on, and on, up to twenty times a second",
            transfers,
        ),
        Scenario(
            "namesrv-kill",
            "SIGKILL one of two name servers; started again it knows no route",
            partial(strikes, kinds.KILL_NAMESRV, Target.NAMESRV),
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
            "a node loses its disk, a bit of its log, a file, the end of one; its group mends it",
            _in_turn(_ON_BOTH, kinds.WIPE, kinds.ROT, kinds.LOST_FILE, kinds.SHORT_FILE),
        ),
        Scenario(
            "leader-isolated",
            "the leader is cut off from its group, and the next time from clients as well",
            _in_turn([Target.LEADER], kinds.PARTITION, kinds.ISLAND),
            network=True,
        ),
        Scenario(
            "partition-halves",
            "five nodes: the leader and another don't hear the other three, clients reach all",
            partial(strikes, kinds.PARTITION, Target.MINORITY),
            nodes=5,
            network=True,
        ),
        Scenario(
            "partition-ring",
            "five nodes, each of which hears two others only",
            partial(strikes, kinds.RING, Target.ALL),
            nodes=5,
            network=True,
        ),
        Scenario(
            "bridge",
            "the leader and a follower don't hear each other, and the third hears both",
            partial(strikes, kinds.BRIDGE, Target.LEADER),
            network=True,
        ),
        Scenario(
            "one-way",
            "nothing that the leader says reaches its group, and the next time the reverse",
            _in_turn([Target.LEADER], kinds.MUTE, kinds.DEAF),
            network=True,
        ),
        Scenario(
            "clients-cut",
            "clients can't reach the leader, which goes on leading; its group hears it well",
            partial(strikes, kinds.CUT_CLIENTS, Target.LEADER),
            network=True,
        ),
        Scenario(
            "namesrv-cut",
            "no broker reaches a name server",
            partial(strikes, kinds.CUT_NAMESRV, Target.ALL),
            network=True,
        ),
        Scenario(
            "slow-links",
            "all links are slow, then lossy, then narrow; then all connections are reset",
            _in_turn([Target.ALL], kinds.SLOW, kinds.LOSSY, kinds.NARROW, kinds.RESET),
            network=True,
        ),
        Scenario(
            "bad-packets",
            "the network loses packets, then doubles some, then changes some; then it is narrow",
            _in_turn([Target.ALL], kinds.LOSSY, kinds.DOUBLED, kinds.GARBLED, kinds.NARROW),
            network=True,
        ),
        Scenario(
            "late-packets",
            "packets are late, and the next time some overtake others",
            _in_turn([Target.ALL], kinds.SLOW, kinds.DISORDERED),
            network=True,
        ),
        Scenario(
            "failpoints",
            "a node ends, and the next time is held, at one named place of our code after another",
            partial(at_places, [kinds.FAILPOINT_KILL, kinds.FAILPOINT_HOLD], _WITH_WHOLE_LOGS),
            network=True,
            segment_bytes=SHORT_SEGMENT_BYTES,
        ),
        Scenario(
            "sick-disks",
            "a disk syncs slowly, then not at all, is full, read-only, writes by halves, goes back",
            _in_turn(
                _ON_BOTH,
                kinds.SLOW_DISK,
                kinds.BAD_SYNC,
                kinds.FULL_DISK,
                kinds.READ_ONLY,
                kinds.TORN,
                kinds.STALE,
            ),
            segment_bytes=SHORT_SEGMENT_BYTES,
        ),
        Scenario(
            "wrecked-disks",
            "a disk loses its power, has no room left, turns read-only, fails writes; as root",
            _in_turn(
                _ON_BOTH,
                kinds.POWER_LOSS,
                kinds.NO_SPACE,
                kinds.ABORTED,
                kinds.WRITE_ERRORS,
                kinds.LAST_WRITES,
            ),
            segment_bytes=SHORT_SEGMENT_BYTES,
            disks=True,
        ),
        Scenario(
            "clock-jumps",
            "the leader's clock is a minute ahead, then one behind, then jumps to and fro",
            _in_turn([Target.LEADER], kinds.CLOCK_AHEAD, kinds.CLOCK_BEHIND, kinds.CLOCK_STROBE),
        ),
        Scenario(
            "starved",
            "the leader and then a follower lacks descriptors, room in files, memory, a processor",
            _in_turn(
                _ON_BOTH, kinds.FEW_FILES, kinds.SMALL_FILES, kinds.LOW_MEMORY, kinds.SLOW_CPU
            ),
            segment_bytes=SHORT_SEGMENT_BYTES,
        ),
        Scenario(
            "membership-storm",
            "a fourth node comes and goes, then a follower is removed and added again",
            partial(in_turn, [(kinds.JOIN, Target.LEADER), (kinds.DISMISS, Target.FOLLOWER)]),
        ),
        Scenario(
            "namesrv-blank",
            "one of two name servers knows nothing, and says so to anyone who asks",
            partial(strikes, kinds.BLANK_NAMESRV, Target.NAMESRV),
            namesrvs=2,
        ),
        Scenario(
            "renewals",
            "all certificates, then the cluster's secret are renewed; the leader dies meanwhile",
            partial(renewals, [kinds.RENEW_CERTIFICATES, kinds.RENEW_SECRET]),
            namesrvs=2,
            guarded=True,
        ),
    )
}

RANDOM = "random"


def planned_of(
    scenario: Scenario,
    seed: int,
    count: int,
    workload: str = "keyed",
    made: Made = PLAIN,
) -> Planned:
    """A scenario with a seed's draws."""
    needed = replace(
        made,
        disks=made.disks or scenario.disks,
        tls=made.tls or scenario.guarded,
        users=made.users or scenario.guarded,
    )
    return Planned(
        scenario=scenario.name,
        seed=seed,
        steps=scenario.plan(count, random.Random(seed).uniform),
        rate_per_s=scenario.rate_per_s,
        workload=workload,
        nodes=scenario.nodes,
        namesrvs=scenario.namesrvs,
        network=scenario.network,
        segment_bytes=scenario.segment_bytes,
        drawn_by=_command(scenario.name, seed, f"--kills {count}", workload, made),
        **asdict(needed),
    )


def random_plan(
    seed: int,
    duration_s: float,
    workload: str = "keyed",
    made: Made = PLAIN,
    lacking: Collection[str] = (),
) -> Planned:
    """All faults that there are, but those `lacking`, drawn by a seed, for about so many seconds.

    In namespaces links can always be broken; else in most plans.
    """
    uniform = random.Random(seed).uniform
    network = uniform(0.0, 1.0) < PROXIED_SHARE or made.namespaces
    left_out = {*lacking, *(kinds.OF_MEMBERS if network else kinds.OF_NETWORK)}
    left_out |= frozenset() if made.namespaces else kinds.OF_PACKETS
    left_out |= frozenset() if made.disks else kinds.OF_OWN_DISKS
    left_out |= frozenset() if made.tls else kinds.OF_CERTIFICATES
    if WORKLOADS[workload].sends == "delayed":
        left_out |= kinds.OF_CLOCKS  # what is due goes by them
    return Planned(
        scenario=RANDOM,
        seed=seed,
        steps=draw(duration_s, uniform, NODES, KINDS.keys() - left_out),
        rate_per_s=RANDOM_RATE_PER_S,
        workload=workload,
        nodes=NODES,
        namesrvs=2,
        network=network,
        segment_bytes=SHORT_SEGMENT_BYTES,
        strict=False,
        send_timeout_s=RANDOM_SEND_TIMEOUT_S,
        drawn_by=_command(RANDOM, seed, f"--duration {duration_s}", workload, made),
        **asdict(made),
    )


def _command(scenario: str, seed: int, how_much: str, workload: str, made: Made) -> str:
    words = ["mqchaos run --scenario", scenario, f"--seed {seed}", how_much, *made.options]
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
