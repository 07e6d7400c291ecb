"""What counts as bytes, for whoever takes them: a view is as good as a copy, and cheaper."""

from __future__ import annotations

from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
