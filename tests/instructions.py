"""Instructions of Python, counted: a busy machine changes their time, and not their number."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Counter:
    """How many instructions of Python this thread has run while it was on."""

    def __init__(self) -> None:
        self.count = 0

    def _called(self, frame: FrameType, _event: str, _argument: object) -> object:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._ran

    def _ran(self, _frame: FrameType, event: str, _argument: object) -> object:
        self.count += event == "opcode"
        return self._ran

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count within the block; a debugger's or a coverage's own tracing rests meanwhile."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)
