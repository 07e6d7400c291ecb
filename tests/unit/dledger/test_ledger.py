"""A ledger over real files and a real port, for what simulations have no part in: its loops."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import trio
import trio.testing

from dledger import Appended, Entry, LedgerConfig, open_ledger
from dledger.errors import PeerPortClosed, WrittenByNewer
from mqchaos.cluster.processes import free_ports


class Machine:
    """Keeps nothing."""

    def __init__(self) -> None:
        self.applied_index = 0
        self.led = trio.Event()

    def apply(self, entry: Entry) -> object:
        """Take an entry."""
        return None

    def leading(self, term: int) -> None:
        """Appends may begin."""
        self.led.set()

    def following(self, leader: str | None, term: int) -> None:
        """No appends."""


async def test_a_ledger_tells_when_it_has_changed_and_when_it_is_fenced(tmp_path: Path) -> None:
    """Nobody has to ask it again and again."""
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path)
    machine = Machine()
    with trio.fail_after(30):
        async with open_ledger(config, machine) as ledger, trio.open_nursery() as nursery:
            await machine.led.wait()
            changed, reasons = trio.Event(), list[str]()

            async def wait_changed() -> None:
                await ledger.changed()
                changed.set()

            async def wait_fenced() -> None:
                reasons.append(str(await ledger.wait_fenced()))

            nursery.start_soon(wait_changed)
            nursery.start_soon(wait_fenced)
            await trio.testing.wait_all_tasks_blocked()
            assert not changed.is_set()
            done = await ledger.append(b"entry")
            assert isinstance(done, Appended)
            await changed.wait()
            assert not reasons
            ledger._stepper.fail(OSError(5, "the disk is gone"))
        assert ["the disk is gone" in reason for reason in reasons] == [True]
        assert ledger.status.fenced is not None


class Older(Machine):
    """Knows none of the entries."""

    def apply(self, entry: Entry) -> object:
        """Refuse what a newer version wrote."""
        raise WrittenByNewer("an entry")


async def test_who_waits_for_a_fence_is_given_the_error_itself(tmp_path: Path) -> None:
    """What is to be done follows from its type: a disk is not at fault here."""
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path)
    with trio.fail_after(30):
        async with open_ledger(config, Older()) as ledger:
            assert isinstance(await ledger.wait_fenced(), WrittenByNewer)


async def test_a_peer_port_that_is_taken_is_an_error_of_its_own(tmp_path: Path) -> None:
    """Who started the node knows which of its ports to change."""
    config = LedgerConfig("g", "n0", {"n0": ("127.0.0.1", free_ports(1)[0])}, tmp_path / "a")
    other = dataclasses.replace(config, directory=tmp_path / "b")
    async with open_ledger(config, Machine()):
        with pytest.raises(PeerPortClosed, match="Address already in use"):
            async with open_ledger(other, Machine()):
                pass
