"""A run before it is run: all that is decided beforehand, as a file that a replay reads.

`plan.json` lies in the run's directory. It holds the steps themselves, not only the seed that they
were drawn with: a later version may draw others, and a plan that was made smaller has no seed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from dledger.errors import ConfigError
from dledger.failpoints import PLACES
from mqchaos import limits
from mqchaos.faults.generator import AtShare, Plan
from mqchaos.faults.kinds import AT_PLACES, KINDS, OF_CERTIFICATES
from mqchaos.run.load.workload import WORKLOADS

PLAN_FILE: Final = "plan.json"
VERSION: Final = 1


class Made(msgspec.Struct, frozen=True):
    """The parts of a run where there is a choice.

    With `namespaces` links are the kernel's, else the proxy's. With `disks` each node has file
    systems of its own, with `clocks` one that its whole process sees. With `parquet` the history is
    packed while the run goes on. `busy`: so many processes beside the servers want a processor all
    the time. With `tls` all ports take TLS alone; with `users` rights are enforced, and clients and
    harness sign.
    """

    namespaces: bool = False
    disks: bool = False
    clocks: bool = False
    parquet: bool = False
    busy: int = 0
    tls: bool = False
    users: bool = False

    @property
    def options(self) -> list[str]:
        """The command's words for it."""
        words = {
            "--network namespaces": self.namespaces,
            "--disks own": self.disks,
            "--clocks processes": self.clocks,
            "--history parquet": self.parquet,
            f"--busy {self.busy}": self.busy > 0,
            "--tls": self.tls,
            "--users": self.users,
        }
        return [word for word, wanted in words.items() if wanted]


PLAIN: Final = Made()


class Planned(Made, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The plan of a run. `messages` None: until the plan is through. The rate is of all producers.

    `strict`: a fault that can't be injected ends the run, and pauses are judged by the bounds of
    their kinds. A random plan is not: there a fault is left out, and pauses run into each other.
    With `network` links can be broken. `drawn_by` is the command that draws the same plan; "" for
    one that was changed since.
    """

    scenario: str
    seed: int
    steps: Plan
    rate_per_s: float
    messages: int | None = None
    workload: str = "keyed"
    nodes: int = 3
    namesrvs: int = 1
    network: bool = False
    segment_bytes: int = limits.SEGMENT_BYTES
    strict: bool = True
    send_timeout_s: float = limits.SEND_TIMEOUT_S
    drawn_by: str = ""
    version: int = VERSION


def write_plan(directory: Path, planned: Planned) -> None:
    """Write the plan of a run to plan.json in `directory`."""
    data = msgspec.json.format(msgspec.json.encode(planned), indent=1)
    (directory / PLAN_FILE).write_bytes(data + b"\n")


def read_plan(directory: Path) -> Planned:
    """The plan of a run's directory, or of a file. Raises ConfigError."""
    path = directory / PLAN_FILE if directory.is_dir() else directory
    try:
        planned = msgspec.json.decode(path.read_bytes(), type=Planned)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a run's directory") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not a plan: {error}") from error
    return checked(planned, path)


def checked(planned: Planned, path: Path) -> Planned:
    """The plan that was read. Raises ConfigError for values that can't be run, and names them."""
    unknown = {step.fault for step in planned.steps if step.fault} - {*KINDS}
    if unknown:
        raise ConfigError(f"{path} has faults that do not exist: {', '.join(sorted(unknown))}")
    for step in planned.steps:
        if (step.fault in AT_PLACES) != (step.place in PLACES):
            raise ConfigError(f"{path} has {step.fault or step.phase.value} at {step.place!r}")
    if planned.messages is None and any(isinstance(step.when, AtShare) for step in planned.steps):
        raise ConfigError(f"{path} has steps at a share of the messages, but no number of messages")
    if planned.workload not in WORKLOADS:
        raise ConfigError(f"{path} has the workload {planned.workload!r}, which does not exist")
    if planned.messages is not None and WORKLOADS[planned.workload].stock:
        raise ConfigError(f"{path} has a number of messages, which stock clients don't count")
    if not planned.tls and any(step.fault in OF_CERTIFICATES for step in planned.steps):
        raise ConfigError(f"{path} renews certificates, and has no TLS")
    for name, value, least, most in (
        ("version", planned.version, VERSION, VERSION),
        ("seed", planned.seed, 0, limits.SEED_MAX),
        ("nodes", planned.nodes, 1, limits.NODES_MAX),
        ("namesrvs", planned.namesrvs, 1, limits.NAMESRVS_MAX),
        ("busy", planned.busy, 0, limits.BUSY_MAX),
        ("segment_bytes", planned.segment_bytes, 64 << 10, 1 << 30),
        ("rate_per_s", planned.rate_per_s, 1, 1e6),
        ("send_timeout_s", planned.send_timeout_s, 0.1, 3600),
    ):
        if not least <= value <= most:
            raise ConfigError(f"{path} has {name} {value}; it must be from {least} to {most}")
    return planned
