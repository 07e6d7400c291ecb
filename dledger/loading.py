"""Public names of a package that are loaded when they are first used.

A command, or a process that Spark starts for one call, then loads no more than it needs. Nothing
that takes time is imported here: commands come through here before they see to Ctrl-C.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package: `homes` has the names of each module, with a space between
    them."""
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        from importlib import import_module  # noqa: PLC0415 - see above

        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home_of[name]), name)

    return load


def listed(package: str) -> Callable[[], list[str]]:
    """The `__dir__` of a package: its public names, those that are not loaded yet among them."""

    def names() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*own["__all__"], *(name for name in own if name.startswith("__"))})

    return names
