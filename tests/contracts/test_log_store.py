"""Contract of all log stores; those that are broken on purpose do not keep it."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from dledger.errors import DledgerError
from dledger.testing.contracts.log import SEEDS, LogStoreContract, PowerLossContract
from dledger.testing.contracts.log_model import InMemory
from dledger.testing.log_store import OnRealDisk, OnSimulatedDisk
from dledger.testing.planted.catalogue import plant


class TestFiles(LogStoreContract):
    """The segmented log on real files."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> OnRealDisk:
        return OnRealDisk(tmp_path / "log")


class TestSimulatedDisk(LogStoreContract, PowerLossContract):
    """The segmented log on the disk of the simulation."""

    @pytest.fixture
    def storage(self) -> OnSimulatedDisk:
        return OnSimulatedDisk()


class TestModel(LogStoreContract, PowerLossContract):
    """The list of entries that the segmented log is compared with."""

    @pytest.fixture
    def storage(self) -> InMemory:
        return InMemory()


def is_kept(promise: str) -> bool:
    """Whether a test of the contract succeeds on the simulated disk, with every seed."""
    contract = TestSimulatedDisk()
    test = getattr(contract, f"test_{promise}")
    seeds = SEEDS if "seed" in inspect.signature(test).parameters else [None]
    try:
        for seed in seeds:
            test(OnSimulatedDisk(), *([] if seed is None else [seed]))
    except (AssertionError, DledgerError, pytest.fail.Exception):
        return False
    return True


@pytest.mark.parametrize(
    ("bug", "promise"),
    [
        ("sync nothing", "what_was_durable_survives_and_the_rest_has_no_holes"),
        ("call a failed sync good", "after_a_failed_sync_nothing_more_is_taken"),
        ("vouch for what a cut replaced", "a_sync_that_a_cut_overtook_counts_for_nothing"),
        ("vouch for what a killed process left", "what_a_start_found_is_durable"),
        ("forget the folder's sync", "where_a_log_begins_is_durable"),
        ("keep the watermark in a cut", "a_cut_is_durable_at_once"),
        ("cut what was durable", "damage_to_what_was_durable_stops_the_start"),
        ("skip the body's checksum", "damage_to_what_was_durable_stops_the_start"),
        ("keep conflicting entries", "a_copy_that_does_not_continue_the_log_is_refused"),
    ],
)
def test_a_broken_store_fails(bug: str, promise: str) -> None:
    """A fix that is taken out breaks its promise."""
    assert is_kept(promise)
    with plant(bug):
        assert not is_kept(promise)
