"""The helpers beside these tests can be imported, and their failures tell values."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("replicas")
sys.path.insert(0, str(Path(__file__).parent))
