"""Power losses of real machines' file systems: one replica, a majority, or all at one moment.

    python -m mqchaos.faults.power_loss --rounds 100 [--seed N] [--directory DIR]

Each replica of a real group has an ext4 of its own (`mqchaos.cluster.ext4`), and every message is
answered when it is durable on a majority. In each round, under load, the power of some is cut,
their processes are killed, and they start again on what is left. In the end every acknowledged
message must lie where its acknowledgement said, on every replica. Needs root.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import cyclopts
import trio

from dledger.errors import DledgerError
from dledger.log.recovery.startup import open_log
from dledger.log.recovery.verify import verify_replica
from dledger.log.store import SegmentedLog
from dledger.program.logs import configure_logging
from dledger.remoting.message import UNIQ_KEY, properties_decode
from dledger.remoting.record import Record
from dledger.remoting.record.layout import RECORD_OVERHEAD_BYTES
from mqchaos.cluster.cluster import Cluster
from mqchaos.cluster.ext4 import Ext4, mounted, why_not
from mqchaos.cluster.layout import Flush, NodeLayout, plan, ports_needed
from mqchaos.cluster.probe import Probe
from mqchaos.cluster.processes import free_ports
from mqchaos.limits import POWER_LOSS_PATIENCE_S, POWER_LOSS_SEND_TIMEOUT_S
from mqclient import ClientError, Message, PendingSend, Producer

BROKER: Final = "broker-a"
NODES: Final = 3
VICTIMS: Final = (1, 2, 3)
BODY_BYTES: Final = (100, 1000, 4000)
SENDS_IN_FLIGHT: Final = 200

app = cyclopts.App(name="power_loss", help="Cut the power of real replicas, again and again.")


@dataclass(slots=True)
class Report:
    """The trials of a run, and their results."""

    rounds: dict[int, int] = field(default_factory=lambda: dict.fromkeys(VICTIMS, 0))
    acknowledged: list[tuple[int, str]] = field(default_factory=list)
    """Positions and ids. A position may come twice: if what was acknowledged there was lost."""
    unknown: int = 0
    lost: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing acknowledged was lost, and nothing durable damaged."""
        return not self.lost and not self.damaged

    def __str__(self) -> str:
        """A line for each question."""
        rounds = ", ".join(f"{count} on {victims}" for victims, count in self.rounds.items())
        return (
            f"power losses: {rounds} of {NODES} replicas\n"
            f"{len(self.acknowledged)} acknowledged, {self.unknown} of unknown outcome, "
            f"{len(self.lost)} lost, {len(self.damaged)} damaged\n"
            + "\n".join([*self.lost[:10], *self.damaged[:10]])
        ).rstrip()


class Load:
    """Steady sends; what was acknowledged, by its position in the log."""

    def __init__(self, producer: Producer, rng: random.Random, report: Report) -> None:
        self._producer = producer
        self._rng = rng
        self._report = report
        self._slots = trio.Semaphore(SENDS_IN_FLIGHT)
        self._acknowledged = trio.Event()

    async def next_acknowledged(self) -> None:
        """Wait until an answer comes: what it is about may not have been synced by much."""
        self._acknowledged = trio.Event()
        await self._acknowledged.wait()

    def _settled(self, pending: PendingSend) -> None:
        self._slots.release()
        try:
            result = pending.result()
        except ClientError:
            self._report.unknown += 1
        else:
            self._report.acknowledged.append((result.position, result.message_id))
            self._acknowledged.set()

    async def run(self) -> None:
        """Send messages, a bounded number in flight, until cancelled."""
        while True:
            await self._slots.acquire()
            body = self._rng.randbytes(self._rng.choice(BODY_BYTES))
            pending = await self._producer.send_soon(Message("PowerLoss", body))
            pending.add_callback(self._settled)


@contextmanager
def cluster_on_disks(directory: Path, flush: Flush) -> Iterator[tuple[Cluster, dict[str, Ext4]]]:
    """A running group, each replica on a file system of its own. All is ended and unmounted."""
    layout = plan(free_ports(ports_needed(NODES, 1, 1)), NODES, 1, 1, flush)
    cluster = Cluster.create(directory / "cluster", layout)
    with ExitStack() as stack:
        disks = {
            node.name: stack.enter_context(
                mounted(directory / f"{node.name}.img", cluster.store(node))
            )
            for node in layout.nodes
        }
        stack.callback(cluster.kill_all)
        cluster.start()
        yield cluster, disks


def choose(rng: random.Random, nodes: Sequence[NodeLayout], leader: str, count: int) -> list[str]:
    """Choose the nodes that lose power. If it is one alone, it is the leader half of the time."""
    if count == 1 and rng.random() < 0.5:
        return [leader]
    return rng.sample([node.name for node in nodes], count)


async def lose_power(cluster: Cluster, disks: dict[str, Ext4], names: Sequence[str]) -> None:
    """Cut, kill, mount again, start again."""

    def cut() -> None:
        for name in names:
            disks[name].cut_power()
        for name in names:
            cluster.kill(name)
            disks[name].unmount()
            disks[name].mount()
        cluster.start(names)

    await trio.to_thread.run_sync(cut)


async def run_rounds(
    directory: Path,
    rounds: int,
    seed: int,
    *,
    victims: Sequence[int] = VICTIMS,
    flush: Flush = "SYNC_FLUSH",
) -> Report:
    """Rounds on one replica, on a majority, on all, in turn; then the look at the logs."""
    rng, report = random.Random(seed), Report()
    with cluster_on_disks(directory, flush) as (cluster, disks):
        async with (
            cluster.pool() as pool,
            Producer(
                cluster.layout.namesrv_addr,
                "PowerLoss",
                timeout_s=POWER_LOSS_SEND_TIMEOUT_S,
                **cluster.access,
            ) as producer,
        ):
            probe = Probe(cluster, pool)
            await probe.wait_until_serving()
            async with trio.open_nursery() as nursery:
                load = Load(producer, rng, report)
                nursery.start_soon(load.run)
                for number in range(rounds):
                    await trio.sleep(rng.uniform(0.3, 1.0))
                    leader = (await probe.wait_for_leader(BROKER, POWER_LOSS_PATIENCE_S)).node.name
                    count = victims[number % len(victims)]
                    chosen = choose(rng, cluster.layout.nodes, leader, count)
                    with trio.fail_after(POWER_LOSS_PATIENCE_S):
                        await load.next_acknowledged()
                    await lose_power(cluster, disks, chosen)
                    report.rounds[count] += 1
                    await probe.wait_for_leader(BROKER, POWER_LOSS_PATIENCE_S)
                    await probe.wait_until_level(BROKER)
                nursery.cancel_scope.cancel()
            await producer.flush()
            await probe.wait_until_level(BROKER)
        await trio.to_thread.run_sync(cluster.stop)
        for node in cluster.layout.nodes:
            _look(cluster, node, report)
    return report


def _look(cluster: Cluster, node: NodeLayout, report: Report) -> None:
    """Find every acknowledged message in one stopped replica's log."""
    store = cluster.store(node)
    for fault in verify_replica(store).faults:
        if fault.severity == "damaged":
            report.damaged.append(f"{node.name}: {fault.file}, {fault.what}")
    log, _ = open_log(store / "log", cluster.layout.segment_bytes)
    for position, message_id in report.acknowledged:
        found = _message_at(log, position)
        if found != message_id:
            report.lost.append(f"{node.name}: {message_id} at position {position}, found {found}")
    log.close()


def _message_at(log: SegmentedLog, position: int) -> str | None:
    """The id of the message at a position; None if there is none."""
    try:
        size = Record(log.reader.view(position, RECORD_OVERHEAD_BYTES)).size
        return properties_decode(Record(log.reader.view(position, size)).properties).get(UNIQ_KEY)
    except (DledgerError, LookupError, ValueError, struct.error):
        # The log ends before, or something else stands there.
        return None


@app.default
def main(*, rounds: int = 100, seed: int = 1, directory: Path | None = None) -> int:
    """Run rounds; exit status 1 if something acknowledged was lost, 2 if it can't be tried here.

    Parameters
    ----------
    rounds
        How often the power is cut: on one, two and three of three replicas in turn.
    seed
        Of the choices; the moments are the machine's own.
    directory
        Where images and logs are kept meanwhile; by default a temporary folder.
    """
    configure_logging("console", "error")
    with tempfile.TemporaryDirectory(prefix="power-loss-", dir=directory) as folder:
        problem = why_not(Path(folder))
        if problem is not None:
            sys.stderr.write(f"power_loss: {problem}\n")
            return 2
        report = trio.run(run_rounds, Path(folder), rounds, seed)
    print(f"seed {seed}: {report}")
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(app())
