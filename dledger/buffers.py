"""The type for functions that take bytes: a view will do, and is cheaper than a copy."""

from __future__ import annotations

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
