"""The tasks of a run's clients, by its plan and its workload. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from mqchaos.cluster.access import NO_IDENTITY, Identity
from mqchaos.limits import RANDOM_SEND_TIMEOUT_S
from mqchaos.run.load.workload import WORKLOADS, Consume, Produce, Workload, run_name, split
from mqchaos.run.planned import Planned

PRODUCERS: Final = 2
CONSUMERS: Final = 2


class Assigning(NamedTuple):
    """Maker of the clients' tasks. Clients reach the name servers at `address`, and keep their
    files in the run's `directory`."""

    planned: Planned
    address: str
    topic: str
    group: str
    directory: Path
    lines: Path
    part_bytes: int
    identity: Identity = NO_IDENTITY

    @property
    def workload(self) -> Workload:
        """The work of the clients."""
        return WORKLOADS[self.planned.workload]

    def file(self, client: str) -> str:
        """Path of the history that a client writes."""
        return str(self.directory / "history" / f"{client}.jsonl")

    @property
    def _rate_per_s(self) -> float:
        """Messages a second of all producers."""
        workload = self.workload
        return min(self.planned.rate_per_s, workload.rate_per_s_max) * workload.rate_share

    @property
    def _send_timeout_s(self) -> float:
        """Timeout of a send: as long as a broker group that is away on purpose may take to come
        back."""
        own_s = self.planned.send_timeout_s
        return max(own_s, RANDOM_SEND_TIMEOUT_S) if self.workload.groups > 1 else own_s

    def consume(self, number: int) -> Consume:
        """Task of the consumer of this number."""
        workload, name = self.workload, f"consumer-{number}"
        offsets = str(self.directory / f"{name}.offsets.json") if workload.broadcast else None
        return Consume(
            client=name,
            namesrv_addr=self.address,
            topic=self.topic,
            history=self.file(name),
            at_once=workload.dies_s is not None,
            part_bytes=self.part_bytes,
            group=self.group,
            stay_s=workload.stay_s,
            ordered=workload.ordered,
            offsets=offsets,
            once=name if workload.once else None,
            members=workload.members,
            naps=workload.by_priority,
            handles=workload.deployed,
            threads=workload.threads,
            beginning=workload.beginning,
            away=workload.away,
            forks=workload.forks,
            identity=self.identity,
        )

    def produce(self, number: int) -> Produce:
        """Task of the producer of this number."""
        workload, planned, name = self.workload, self.planned, f"producer-{number}"
        total = planned.messages
        return Produce(
            client=name,
            namesrv_addr=self.address,
            topic=self.topic,
            history=self.file(name),
            at_once=workload.producers_die_s is not None,
            part_bytes=self.part_bytes,
            lines=str(self.lines),
            index=number,
            producers=PRODUCERS,
            messages=None if total is None else split(total, PRODUCERS)[number],
            rate_per_s=self._rate_per_s / (PRODUCERS * max(1, workload.forks)),
            run=run_name(planned.seed, planned.scenario),
            lines_each=workload.lines,
            keyed=workload.keyed,
            send_timeout_s=self._send_timeout_s,
            sends=workload.sends,
            forks=workload.forks,
            identity=self.identity,
        )
