"""A model of a sink's batches: each is stored once, whole, in order, whatever happens.

Drivers begin, run tasks once or twice, decide, die at any moment and are replaced, while they may
only be slow. Answers get lost, so requests are repeated; groups are away for a while; their leaders
look at what is left, by an old answer too; time passes. The drivers' and leaders' own rules run
(`BatchDecider`, `StagedHandler`), and the state's (`Memory`); the network, the log and Spark are
the model's. The page that argues why it holds is docs/explanation/spark-sink.md.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import trio
from trio._core import _run as trio_runs
from trio.testing import MockClock

from dledger.errors import NotLeader
from dledger.remoting.bodies import BrokerData, ClusterInfo
from dledger.remoting.bodies.staged import Places, Staged, decode_places, encode_places
from dledger.remoting.codes import RequestCode, ResponseCode
from dledger.remoting.command import Command
from dledger.remoting.headers import (
    DecisionOfHeader,
    DecisionOfResponseHeader,
    EndStagedHeader,
    RegisterProducerHeader,
    RegisterProducerResponseHeader,
    WriteOnceHeader,
    decode_header,
    encode_header,
)
from dledger.remoting.names import HALF_TOPIC
from mqbroker import limits
from mqbroker.leader import staged as rules
from mqbroker.leader.staged import Entry, HomeAnswer
from mqbroker.requests.sending import staged as looks
from mqbroker.requests.sending.staged import StagedHandler
from mqbroker.state import control
from mqbroker.state.aside import Unusable
from mqbroker.state.decisions import Decisions
from mqbroker.state.memory import Memory
from mqbroker.state.moves import Move
from mqbroker.state.once import Decision
from mqbroker.state.producers import Judged, Producers
from mqclient import limits as client_limits
from mqclient.admin.session import run_for_each
from mqclient.bulk import deciding
from mqclient.bulk.deciding import BatchDecider
from mqclient.errors import ClientError, NoLeader

SEED = 20261127
BATCHES = 3
ROWS = 12
KEYS = 3
NAME = "query"
GROUPS = ("a", "b")


class Died(Exception):
    """The death of a driver."""


class Group:
    """A broker group: its state, the rows that readers see, and whether it is away."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.state = Memory()
        self.staged: list[tuple[Staged, list[int], int]] = []
        self.seen: list[int] = []
        self.contents: dict[int, tuple[int, bytes]] = {}
        self.answers: list[HomeAnswer] = []
        self.is_away = False
        self._index = count(1)

    def stage(self, staged: Staged, rows: list[int]) -> tuple[int, int]:
        """Store one more staged entry; its place."""
        offset, now_ms = len(self.staged), self.world.now_ms()
        self.staged.append((staged, rows, now_ms))
        self.state.halves.add(offset, now_ms, ("T", staged.name))
        return offset, offset

    def move(self, offset: int, *, commit: bool) -> None:
        """The entry that ends a staged one. The state machine sets a second one aside."""
        move = Move(HALF_TOPIC, 0, ((offset, offset + 1),))
        try:
            self.state.halves.check(move)
        except Unusable:
            return
        self.state.halves.take(move)
        if commit:
            self.seen += self.staged[offset][1]

    def serve(self, command: Command) -> Command:
        """The answer of the group's leader."""
        code, state = command.code, self.state
        if code == RequestCode.REGISTER_PRODUCER:
            asked = decode_header(RegisterProducerHeader, command)
            change = control.RegisterProducer(asked.producer_name, asked.instance, 0)
            epoch = state.change(change, next(self._index))
            if epoch is Judged.FENCED:
                return Command(ResponseCode.PRODUCER_FENCED, {})
            return self._reply(RegisterProducerResponseHeader(epoch))  # type: ignore[arg-type]
        if code == RequestCode.DECISION_OF:
            told, content = self.told(decode_header(DecisionOfHeader, command).producer_name)
            answer = DecisionOfResponseHeader(told.epoch, told.batch, told.offsets is not None)
            return self._reply(answer, content)
        if code == RequestCode.WRITE_ONCE:
            return self._decide(decode_header(WriteOnceHeader, command), bytes(command.payload))
        assert code == RequestCode.END_STAGED
        ended = decode_header(EndStagedHeader, command)
        for offset, _ in ((ended.offset, 0), *(ended.following or ())):
            self.world.end_staged(self, offset)
            if self.world.hazard(0.03):  # the leader died, and some of them have ended
                raise NoLeader("", (), 0.0)
        return Command(ResponseCode.SUCCESS, {})

    def told(self, name: str) -> tuple[HomeAnswer, bytes]:
        """The decision under a name; `offsets` is None without one."""
        epoch, last = self.state.producers.epoch(name) or 0, self.state.decisions.last(name)
        if last is None:
            return HomeAnswer(epoch, -1, None), b""
        content = self.contents[last.position][1]
        places = decode_places(content)
        return HomeAnswer(epoch, last.batch, (places,)), content  # type: ignore[arg-type]

    def _decide(self, asked: WriteOnceHeader, content: bytes) -> Command:
        batch = asked.batch
        assert batch is not None
        decision = Decision(
            *(asked.producer_name, asked.epoch, asked.stream, asked.sequence, "", [], []),
            *(batch, content),
        )
        last = self.state.decisions.last(decision.name)
        judged = self.state.producers.judge(decision.stamp)
        if judged is Judged.FENCED:
            return Command(ResponseCode.PRODUCER_FENCED, {})
        try:
            self.state.check_once(decision)
        except Unusable:
            assert last is not None, "else nothing is against it"
            return Command(ResponseCode.BATCH_DECIDED, {})
        position = next(self._index)
        self.contents[position] = batch, content
        self.state.write_once(decision, position, 1, self.world.now_ms())
        return Command(ResponseCode.SUCCESS, {})

    @staticmethod
    def _reply(header: Any, body: bytes = b"") -> Command:
        return Command(ResponseCode.SUCCESS, encode_header(header), body)


class World:
    """All groups, the network between them, the drivers, and Spark's checkpoint."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.groups = {name: Group(self, name) for name in GROUPS}
        self.committed = 0
        self.quiet = False
        self.leaders = SimpleNamespace(ask=self.ask, routes=SimpleNamespace(learn_members=id))

    @staticmethod
    def now_ms() -> int:
        """The world's clock in milliseconds."""
        return int(trio.current_time() * 1000)

    async def pause(self, most_s: float = 0.2) -> None:
        """Wait for a random time."""
        await trio.sleep(self.rng.random() * most_s)

    async def cluster_info(self) -> ClusterInfo:
        """The name servers' table of groups."""
        there = {name: BrokerData("c", name, {0: "h:1"}) for name, g in self.groups.items()
                 if not g.is_away}  # fmt: skip
        away = {name: "c" for name, group in self.groups.items() if group.is_away}
        return ClusterInfo(there, {}, away)

    async def ask(
        self, name: str, command: Command, timeout_s: float, topic: str | None = None
    ) -> Command:
        """Ask a group; the request or its answer may get lost."""
        await self.pause()
        group = self.groups[name]
        if group.is_away or self.hazard(0.05):
            raise NoLeader("", (), 0.0)
        answer = group.serve(command)
        await self.pause()
        if self.hazard(0.1):
            raise NoLeader("", (), 0.0)
        return answer

    def hazard(self, chance: float) -> bool:
        """Whether something goes wrong now."""
        return not self.quiet and self.rng.random() < chance

    def end_staged(self, group: Group, offset: int) -> None:
        """END_STAGED: what has ended is left alone."""
        if offset in group.state.halves:
            group.move(offset, commit=True)

    def check(self) -> None:
        """Assert that readers see one attempt's rows of each batch, none twice."""
        for group in self.groups.values():
            twice = [row for row, times in Counter(group.seen).items() if times > 1]
            assert not twice, f"rows {twice} are in group {group.name} twice"
        seen = Counter(row for group in self.groups.values() for row in group.seen)
        assert max(seen.values(), default=1) == 1, f"rows are in two groups: {seen}"
        for row in seen:
            assert row // ROWS in self.decided(), f"row {row} is seen, and not decided"

    def decided(self) -> set[int]:
        """Batches that any group has decided."""
        return {batch for group in self.groups.values() for batch, _ in group.contents.values()}


class ModelDecider(BatchDecider):
    """A driver's part in the model's world."""

    def __init__(self, world: World) -> None:
        self._requests: Any = SimpleNamespace(
            cluster_info=world.cluster_info, leaders=world.leaders
        )
        self._timeout_s = self._patience_s = 3.0

    def check_open(self) -> None:
        """Do nothing: the client is open for ever."""


class ModelHandler(StagedHandler):
    """A group leader's handling of staged entries that are left."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self._core: Any = SimpleNamespace(machine=group.state, assignments=group.world)
        self._homes: Any = self
        self._transactions: Any = self

    def half(self, offset: int) -> Any:
        """The half message, if it waits."""
        if offset not in self.group.state.halves:
            return None
        return SimpleNamespace(offset=offset, staged=self.group.staged[offset][0])

    def end(self, half: Any, tell: Callable[[Any], None], *, commit: bool) -> None:  # type: ignore[override]
        """Drop the half message, which nobody will see."""
        assert not commit
        self.group.move(half.offset, commit=False)
        tell(None)

    def _publish(self, half: Any, tell: Callable[[Any], None]) -> None:
        self.group.move(half.offset, commit=True)
        tell(None)

    async def decision(self, name: str, home: str) -> HomeAnswer:
        """The home group's answer; its own may be old."""
        world, group = self.group.world, self.group.world.groups[home]
        await world.pause()
        if group.is_away:
            raise NotLeader(None)
        told, content = group.told(name)
        places = decode_places(content) if content else {}
        own = [offset for offset, _ in places.get(self.group.name, ())]
        self.group.answers.append(HomeAnswer(told.epoch, told.batch, own if content else []))
        await world.pause(1.0)
        old = home == self.group.name and world.hazard(0.3)
        return world.rng.choice(self.group.answers) if old else self.group.answers[-1]

    async def fence(self, name: str, home: str) -> None:
        """Take the name for another instance."""
        header = RegisterProducerHeader(name, f"drops{self.group.world.rng.random()}")
        await self.group.world.ask(
            home, Command(RequestCode.REGISTER_PRODUCER, encode_header(header)), 1.0
        )

    async def look(self) -> None:
        """Look once at the entries that wait."""
        group = self.group
        found = [
            Entry(offset, group.staged[offset][0], at_ms)
            for offset, at_ms in group.state.halves.items()
            if at_ms + 2000 < group.world.now_ms()
        ]
        for home in sorted({entry.staged.home for entry in found}):
            mine = [entry for entry in found if entry.staged.home == home]
            try:
                await self._judge(NAME, home, mine)
            except (NoLeader, NotLeader):
                continue


async def drive(world: World, run: int) -> None:
    """A driver of the query: from the batch that the checkpoint says, until it dies."""
    rng, decider = world.rng, ModelDecider(world)
    while world.committed < BATCHES:
        batch = world.committed
        rows = [*range(batch * ROWS, batch * ROWS + ROWS)]
        staged = await decider.begin(NAME, f"run{run}", batch)
        cuts = sorted(rng.sample(range(ROWS), rng.randrange(3)))
        attempts = []
        for begin, end in zip([0, *cuts], [*cuts, ROWS], strict=True):
            tries = [
                await stage(world, staged, rows[begin:end]) for _ in range(rng.choice((1, 1, 2)))
            ]
            attempts.append(rng.choice(tries))
        await world.pause(rng.choice((0.1, 0.1, 2 * limits.STAGED_KEPT_S)))
        die(world)
        await decider.commit(staged, together(attempts))
        die(world)
        seen = {row for group in world.groups.values() for row in group.seen}
        assert {*rows} <= seen, f"batch {batch} is committed, and not all of it is seen"
        world.committed = max(world.committed, batch + 1)


def die(world: World) -> None:
    """Raise Died at random, as a driver may die anywhere."""
    if world.hazard(0.25):
        raise Died


async def stage(world: World, staged: Staged, rows: list[int]) -> Places:
    """Attempt a task: stage entries of a few rows, those of a key in one group."""
    places: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        name = GROUPS[row % KEYS % 2]
        await world.pause(0.05)
        while world.groups[name].is_away:  # noqa: ASYNC110 - a client asks again
            await trio.sleep(1)
        places.setdefault(name, []).append(world.groups[name].stage(staged, [row]))
        if world.hazard(0.05):  # the answer was lost, and the request is repeated
            places[name][-1] = world.groups[name].stage(staged, [row])
    return places


def together(attempts: list[Places]) -> Mapping[str, list[tuple[int, int]]]:
    """The places of all partitions, in order."""
    places: dict[str, list[tuple[int, int]]] = {}
    for attempt in attempts:
        for name, found in attempt.items():
            places.setdefault(name, []).extend(found)
    return places


async def run_drivers(world: World) -> None:
    """Run drivers, one after the other; sometimes one begins while the last is only slow."""
    runs = count()

    async def one() -> None:
        run = next(runs)
        with trio.CancelScope() as life:
            if world.hazard(0.5):
                life.deadline = trio.current_time() + world.rng.random() * 8
            with suppress(Died, ClientError):
                await drive(world, run)

    async with trio.open_nursery() as nursery:
        while world.committed < BATCHES:
            if world.hazard(0.3):
                nursery.start_soon(one)
                await world.pause(4)
            else:
                await one()
                await world.pause()
            if next(runs) > 40:
                world.quiet = True
        nursery.cancel_scope.cancel()


async def trouble(world: World, handlers: list[ModelHandler]) -> None:
    """Make leaders look, groups go away and come back, and readers look at all of it."""

    async def looks(handler: ModelHandler) -> None:
        while True:
            await world.pause(3)
            if not handler.group.is_away:
                await handler.look()
            world.check()

    async def absences(group: Group) -> None:
        while True:
            await world.pause(world.rng.choice((3, 20)))
            group.is_away = world.hazard(0.5)
            await world.pause(5)
            group.is_away = False

    async with trio.open_nursery() as nursery:
        for handler in handlers:
            nursery.start_soon(looks, handler)
            nursery.start_soon(looks, handler)
        for group in world.groups.values():
            nursery.start_soon(absences, group)


async def live(seed: int) -> None:
    """Live one history; AssertionError if it breaks a promise."""
    world = World(random.Random(seed))
    handlers = [ModelHandler(group) for group in world.groups.values()]
    with trio.fail_after(3600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trouble, world, handlers)
            await run_drivers(world)
            world.quiet = True
            await trio.sleep(3 * limits.STAGED_KEPT_S + 30)
            nursery.cancel_scope.cancel()
    world.check()
    waiting = {name: len(group.state.halves) for name, group in world.groups.items()}
    assert not any(waiting.values()), f"staged entries are left: {waiting}"
    for key in range(KEYS):
        of_key = [row for g in world.groups.values() for row in g.seen if row % KEYS == key]
        assert of_key == [*range(key, BATCHES * ROWS, KEYS)], f"key {key}: {of_key}"


def run(seed: int) -> None:
    """Run one history in virtual time, with the seed's order of tasks that run at one time."""
    with (
        patch.object(trio_runs, "_ALLOW_DETERMINISTIC_SCHEDULING", True),
        patch.object(trio_runs, "_r", random.Random(seed)),
        patch.object(limits, "STAGED_KEPT_S", 6.0),
        patch.object(client_limits, "REQUEST_TIMEOUT_S", 1.0),
    ):
        trio.run(live, seed, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("seed", range(SEED, SEED + 40))
def test_each_batch_is_there_once_whole_and_in_order(seed: int) -> None:
    """A batch is stored once, whole and in order, and no other attempt's entries are left."""
    run(seed)


def again(*_: object) -> None:
    """A check that finds nothing."""


def planted() -> Iterator[tuple[str, Callable[[ExitStack], None]]]:
    """Bugs, each of which takes away one of the rules."""

    def decided_again(stack: ExitStack) -> None:
        async def blind(decider: BatchDecider, staged: Staged, places: Places) -> None:
            await decider._decide(staged, encode_places(places))
            await run_for_each(lambda group: decider._publish(*group), places.items())

        stack.enter_context(patch.object(Decisions, "check", again))
        stack.enter_context(patch.object(BatchDecider, "commit", blind))

    def named_dropped(stack: ExitStack) -> None:
        ends_of = rules.ends_of

        def wrong(entries: list[Entry], told: HomeAnswer, old_ms: int) -> rules.Ends:
            ends = ends_of(entries, told, old_ms)
            return ends._replace(ended=[], dropped=[*ends.dropped, *ends.ended])

        stack.enter_context(patch.object(looks, "ends_of", wrong))

    def unfenced_dropped(stack: ExitStack) -> None:
        ends_of = rules.ends_of

        def wrong(entries: list[Entry], told: HomeAnswer, old_ms: int) -> rules.Ends:
            ends = ends_of(entries, told, old_ms)
            return ends._replace(unfenced=[], dropped=[*ends.dropped, *ends.unfenced])

        stack.enter_context(patch.object(looks, "ends_of", wrong))

    def moved_twice(stack: ExitStack) -> None:
        def move(group: Group, offset: int, *, commit: bool) -> None:
            if offset in group.state.halves:
                group.state.halves.take(Move(HALF_TOPIC, 0, ((offset, offset + 1),)))
            if commit:
                group.seen += group.staged[offset][1]

        stack.enter_context(patch.object(Group, "move", move))
        stack.enter_context(
            patch.object(
                World, "end_staged", lambda _, group, offset: move(group, offset, commit=True)
            )
        )

    def old_epoch(stack: ExitStack) -> None:
        judge = Producers.judge

        def wrong(producers: Producers, stamp: Any) -> Judged:
            found = judge(producers, stamp)
            return Judged.NEW if found is Judged.FENCED else found

        stack.enter_context(patch.object(Producers, "judge", wrong))

    def home_in_absence(stack: ExitStack) -> None:
        stack.enter_context(patch.object(deciding, "away_in", lambda _: {}))

    for bug in (
        *(decided_again, named_dropped, unfenced_dropped, moved_twice, old_epoch),
        home_in_absence,
    ):
        yield bug.__name__, bug


@pytest.mark.parametrize(("name", "plant"), [*planted()], ids=[name for name, _ in planted()])
def test_the_model_finds_each_planted_bug(name: str, plant: Callable[[ExitStack], None]) -> None:
    """A planted bug breaks a promise in some history."""
    for seed in range(SEED, SEED + 80):
        with ExitStack() as stack:
            plant(stack)
            if breaks_a_promise(seed):
                return
    pytest.fail(f"no history shows {name}")


def breaks_a_promise(seed: int) -> bool:
    """Whether a history breaks a promise."""
    try:
        run(seed)
    except AssertionError:
        return True
    except BaseExceptionGroup as group:
        if group.split(AssertionError)[0] is None:
            raise
        return True
    return False
