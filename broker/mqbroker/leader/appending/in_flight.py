"""What is on its way to the log, and who is told its outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, TypeVar

from dledger.errors import AppendError
from mqbroker.refusal import Refused

OutcomeT = TypeVar("OutcomeT")

Tell: TypeAlias = Callable[[OutcomeT | Refused | AppendError], None]
"""Is called once, with the outcome or with why there is none."""
