"""Assertion messages of the contracts tell values, as those in test modules do."""

import pytest

pytest.register_assert_rewrite("dledger.testing.contracts.log", "dledger.testing.contracts.ledger")
