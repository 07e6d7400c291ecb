"""What a handler, and who runs it, may ask for: anything else is refused by name."""

from __future__ import annotations

import pytest

from dledger.errors import BadInput
from mqclient import limits
from mqclient.consuming.sending_back import Nack, check_on_error, check_times

NOT_WHOLE = (1.5, "3", None, True)


@pytest.mark.parametrize("level", [-2, limits.DELAY_LEVEL_MAX + 1, *NOT_WHOLE])
def test_a_level_that_no_broker_has_is_refused(level: object) -> None:
    """Below -1, beyond the last one, or no whole number."""
    with pytest.raises(BadInput, match="delay_level="):
        Nack(level)  # type: ignore[arg-type]


def test_each_level_that_a_broker_may_have_is_taken() -> None:
    """-1 for the dead letters, 0 for the broker's choice, and the levels."""
    levels = range(-1, limits.DELAY_LEVEL_MAX + 1)

    assert [Nack(level).delay_level for level in levels] == [*levels]


@pytest.mark.parametrize("times", [-1, 2**31, 1.5, "3", True])
def test_a_number_of_tries_that_can_not_be_sent_is_refused(times: object) -> None:
    """Without one the group's setting holds."""
    with pytest.raises(BadInput, match="max_reconsume_times="):
        check_times(times)  # type: ignore[arg-type]

    assert [check_times(each) for each in (None, 0, 2**31 - 1)] == [None, 0, 2**31 - 1]


def test_a_word_that_names_no_policy_is_refused() -> None:
    """There are two."""
    with pytest.raises(BadInput, match="'retry' or 'raise'"):
        check_on_error("ignore")  # type: ignore[arg-type]
