"""Description of a run that is to be written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from dledger.limits import SEGMENT_BYTES

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]

ID_DIGITS: Final = 32
_SEED_DIGITS: Final = 8
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)


@dataclass(frozen=True)
class Run:
    """A run to be written. Sizes in bytes; `batch` is messages per entry."""

    messages: int = 1000
    queues: int = 8
    batch: int = 50
    body_bytes_min: int = 100
    body_bytes_max: int = 200
    segment_bytes: int = SEGMENT_BYTES
    nodes: tuple[str, ...] = ("n0", "n1", "n2")
    broker: str = "broker-a"
    topic: str = "Audited"
    group: str = "audit-group"
    seed: int = 1

    def message_id(self, number: int) -> str:
        """The unique key of message `number`, counted from 0."""
        return f"{self.seed:0{_SEED_DIGITS}X}{number:0{ID_DIGITS - _SEED_DIGITS}X}"

    def message_ids(self, numbers: Numbers) -> Bytes:
        """The unique keys of these messages, as rows of ASCII."""
        octets = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)
        ids: Bytes = np.full((len(numbers), ID_DIGITS), ord("0"), np.uint8)
        ids[:, :_SEED_DIGITS] = np.frombuffer(self.message_id(0)[:_SEED_DIGITS].encode(), np.uint8)
        ids[:, -16::2] = _HEX[octets >> 4]
        ids[:, -15::2] = _HEX[octets & 15]
        return ids
