"""CRC-32 (zlib's polynomial), by the fastest implementation that is installed. Pure.

isal gives the same values as zlib, several times faster; it has no wheel for every platform.
"""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:  # pragma: no cover - depends on the platform
    from zlib import crc32

__all__ = ["crc32"]
