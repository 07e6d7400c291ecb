"""What holds for every test: examples are searched without a clock, failures can be replayed."""

from __future__ import annotations

from hypothesis import settings

# A shared machine may stop a process for half a second: that says nothing about an example.
settings.register_profile("dledger", deadline=None, print_blob=True)
settings.load_profile("dledger")
