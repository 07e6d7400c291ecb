"""Worker threads do one piece of work at a time; virtual time has its own stand-in."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable

import pytest
import trio
import trio.testing

from dledger.worker import InstantWorker, ThreadWorker, Worker


@pytest.fixture(params=[lambda: ThreadWorker("test"), InstantWorker], ids=["thread", "instant"])
async def worker(request: pytest.FixtureRequest) -> AsyncIterator[Worker]:
    """Workers of both kinds in turn."""
    make: Callable[[], Worker] = request.param
    made = make()
    yield made
    await made.close()


async def test_each_piece_of_work_is_done_and_heard_of(worker: Worker) -> None:
    """Pieces of work are done one after the other, and each end is heard of."""
    done: list[int] = []
    with trio.fail_after(30):
        for number in range(100):
            worker.begin(lambda number=number: done.append(number))  # type: ignore[misc]
            await worker.ended()
            assert done == [*range(number + 1)]


async def test_who_waits_is_given_what_the_work_raises(worker: Worker) -> None:
    """An exception of the work is the waiter's, and the next piece is done as usual."""

    def fail() -> None:
        raise OSError(5, "the disk is gone")

    with trio.fail_after(30):
        worker.begin(fail)
        with pytest.raises(OSError, match="the disk is gone"):
            await worker.ended()
        worker.begin(lambda: None)
        await worker.ended()


async def test_one_may_wait_before_there_is_work(worker: Worker) -> None:
    """A task waits all the time; others begin the work."""
    heard = trio.Event()

    async def hear() -> None:
        await worker.ended()
        heard.set()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hear)
            await trio.testing.wait_all_tasks_blocked()
            worker.begin(lambda: None)
            await heard.wait()


async def test_a_second_piece_is_refused_while_one_is_under_way(worker: Worker) -> None:
    """A second piece at once is an error: no queue could grow."""
    worker.begin(lambda: None)
    with pytest.raises(AssertionError, match="has not ended"):
        worker.begin(lambda: None)


async def test_closing_waits_for_what_is_under_way(worker: Worker) -> None:
    """Closing waits for the work, also when cancelled: a file in use may be closed next."""
    done = threading.Event()
    worker.begin(done.set)
    with trio.CancelScope() as scope:
        scope.cancel()
        await worker.close()
    assert done.is_set()


async def test_closing_tells_what_nobody_has_heard(worker: Worker) -> None:
    """A sync that fails at the very end has failed; but what was heard is not told again."""

    def fail() -> None:
        raise OSError(5, "the disk is gone")

    worker.begin(fail)
    with pytest.raises(OSError, match="the disk is gone"):
        await worker.close()
    await worker.close()


async def test_the_loop_goes_on_meanwhile() -> None:
    """The thread waits for something that only the loop can bring."""
    worker, go = ThreadWorker("test"), threading.Event()

    def wait() -> None:
        assert go.wait(30), "nobody came"

    worker.begin(wait)
    with trio.fail_after(30):
        await trio.lowlevel.checkpoint()
        go.set()
        await worker.ended()
    await worker.close()


async def test_no_thread_is_left() -> None:
    """A closed worker has ended its thread, and begins nothing more."""
    before = threading.active_count()
    worker = ThreadWorker("test")
    worker.begin(lambda: None)
    await worker.ended()
    assert threading.active_count() == before + 1
    await worker.close()
    assert threading.active_count() == before
    with pytest.raises(AssertionError, match="closed"):
        worker.begin(lambda: None)
