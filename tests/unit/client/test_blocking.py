"""The blocking face: whatever the asynchronous one has, under the same names."""

from __future__ import annotations

import inspect

import pytest

import mqclient
from mqclient import blocking

#: What has no place without an event loop: `send_soon` gives a Future there, and never waits long.
LEFT_OUT = {"send_nowait", "check_open", "requests", "name_servers", "groups", "sending_back"}


def public(face: type) -> set[str]:
    return {name for name in dir(face) if not name.startswith("_")} - LEFT_OUT


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_each_face_has_the_same_calls_with_the_same_parameters(name: str) -> None:
    """Nobody has to learn two clients, or to miss a setting of the other one."""
    there, here = getattr(mqclient, name), getattr(blocking, name)
    assert public(there) <= public(here)
    for call in ("__init__", *sorted(public(there))):
        ours = getattr(here, call)
        if callable(ours):
            wanted = list(inspect.signature(getattr(there, call)).parameters)
            assert list(inspect.signature(ours).parameters) == wanted, call
