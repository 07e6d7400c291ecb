"""Features with each stock client, unmodified, against a cluster of real processes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from clients import CLIENTS, LONG_FEATURES, Client
from judges import Scenario, judge


@pytest.mark.parametrize(
    ("client", "feature"),
    [
        pytest.param(
            client,
            feature,
            id=f"{client.name}-{feature}",
            marks=[pytest.mark.long] if feature in LONG_FEATURES else [],
        )
        for client in CLIENTS
        for feature in client.features
    ],
)
def test_a_stock_client_finds_what_it_expects(
    runs: tuple[Mapping[str, dict[str, Scenario]], Mapping[str, str]], client: Client, feature: str
) -> None:
    """A driver sees what a RocketMQ user would have seen."""
    scenarios, missing = runs
    if client.name in missing:
        pytest.skip(f"{client.title} {client.version}: {missing[client.name]}")
    judge(scenarios[client.name][feature])
