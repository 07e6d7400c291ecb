"""Failures in the contracts tell values, as those in test modules do."""

import pytest

pytest.register_assert_rewrite("dledger.testing.log_contract", "dledger.testing.ledger_contract")
