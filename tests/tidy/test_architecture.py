"""Architecture, held by a walk over all imports: the directions, and what stays pure."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conftest import Source

# A package may import itself and these of ours.
ALLOWED = {
    "dledger": set(),
    "mqbroker": {"dledger"},
    "mqnamesrv": {"dledger"},
    "mqclient": {"dledger"},
    "mqchaos": {"mqclient", "dledger"},
    "mqspark": {"mqclient", "dledger"},
    "mqlocal": {"mqbroker", "mqnamesrv", "mqclient", "dledger"},
}

# Inside the foundation: the wire and the log know nothing of each other.
FORBIDDEN_INSIDE = {
    "dledger.remoting": {"dledger.log", "dledger.raft", "dledger.net", "dledger.ledger"},
    "dledger.log": {"dledger.remoting", "dledger.raft", "dledger.net", "dledger.ledger"},
    "dledger.raft": {"dledger.remoting", "dledger.net", "dledger.ledger"},
    "dledger.net": {"dledger.log", "dledger.raft", "dledger.ledger"},
}

# Faces for users that nothing of ours needs to import.
PUBLIC = {"mqclient.blocking"}

MODULES_MAX = 14
ROOT_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
# Modules that the deciding ones import neither directly nor through others.
IMPURE = {
    *("os", "mmap", "fcntl", "shutil", "tempfile", "subprocess", "signal"),
    *("socket", "select", "ssl", "trio", "anyio", "asyncio"),
    *("time", "random", "secrets", "threading", "queue", "multiprocessing", "concurrent"),
}
ROW = re.compile(r"^``(\w+)``  ", re.M)
CLAIMED_BY_ROW = re.compile(r"^``(\w+)``.*\(pure\)$", re.M)
CLAIM = re.compile(r"\bPure\b")


def our_imports(module: Source) -> set[str]:
    return {name for name in module.imports if name.partition(".")[0] in ALLOWED}


def test_packages_meet_where_the_design_says(modules: list[Source]) -> None:
    """The broker, the name server and the client never import each other; the foundation none."""
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for name in our_imports(module)
        if name.partition(".")[0] not in ALLOWED[module.package] | {module.package}
    ]

    assert not wrong, chr(10).join(wrong)


def test_the_judge_does_not_know_the_client(modules: list[Source]) -> None:
    """The judge reads what clients did: its live topics alone are made of the client."""
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        if module.package == "mqspark" and not module.name.startswith("mqspark.topics")
        for name in our_imports(module)
        if name.startswith(("mqclient", "mqspark.topics"))
    ]

    assert not wrong, chr(10).join(wrong)


def test_the_foundations_parts_keep_their_order(modules: list[Source]) -> None:
    """Wire and log are independent; Raft stands on the log, the network on the wire."""
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for part, forbidden in FORBIDDEN_INSIDE.items()
        if module.name == part or module.name.startswith(f"{part}.")
        for name in our_imports(module)
        if any(name == other or name.startswith(f"{other}.") for other in forbidden)
    ]

    assert not wrong, chr(10).join(wrong)


def test_what_stands_side_by_side_forms_no_ring(modules: list[Source]) -> None:
    """Imports between a package's modules and folders form no ring, also through others.

    Types alone are no import.
    """
    packages: dict[str, dict[str, set[str]]] = {}
    for module in modules:
        for name in module.imports_to_run:
            package, one, other = parting(module.name, name)
            if package and one and other:
                packages.setdefault(package, {}).setdefault(one, set()).add(other)
    wrong = [f"{name}: {', '.join(ring)}" for name in packages for ring in rings(packages[name])]

    assert not wrong, chr(10).join(wrong)


def test_no_modules_import_each_other_in_a_circle(modules: list[Source]) -> None:
    """Not even for types. The face of a package, which hands its modules' names on, is none."""
    inner = {module.name: module for module in modules if module.path.name != "__init__.py"}
    graph = {name: {*module.imports & inner.keys()} for name, module in inner.items()}

    assert not rings(graph), rings(graph)


def parting(name: str, other: str) -> tuple[str, str, str]:
    """The package where two names part, and what each is below it."""
    ours, theirs = name.split("."), other.split(".")
    pairs = zip(ours, theirs, strict=False)
    same = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])
    return ".".join(ours[:same]), "".join(ours[same : same + 1]), "".join(theirs[same : same + 1])


def rings(graph: dict[str, set[str]]) -> list[list[str]]:
    """The parts of a graph that reach each other."""
    reached = {start: reach(start, graph) for start in graph}
    found = {
        frozenset(other for other in there if start in reached.get(other, ()))
        for start, there in reached.items()
    }
    return sorted(sorted(ring) for ring in found if ring)


def reach(start: str, graph: dict[str, set[str]]) -> set[str]:
    """Names that can be reached from this one."""
    there: set[str] = set()
    ahead = [*graph[start]]
    while ahead:
        name = ahead.pop()
        if name not in there:
            there.add(name)
            ahead += graph.get(name, ())
    return there


def test_what_programs_import_is_there(modules: list[Source], others: list[Source]) -> None:
    """A benchmark that nobody runs for a while still names modules that exist."""
    known = {module.name for module in modules}
    wrong = [
        f"{program.name} imports {name}"
        for program in others
        for name in our_imports(program)
        if name not in known and name.rpartition(".")[0] not in known
    ]

    assert not wrong, chr(10).join(wrong)


def test_only_the_raft_adapter_knows_its_engine(modules: list[Source]) -> None:
    """PySyncObj can be replaced by changing one folder."""
    users = {
        module.name
        for module in modules
        if any(name.partition(".")[0] == "pysyncobj" for name in module.imports)
    }

    assert {name for name in users if not name.startswith("dledger.raft.library")} == set()


def test_modules_that_decide_do_no_io(modules: list[Source]) -> None:
    """Modules called pure import no clock, chance, event loop, socket or file.

    So they can be tested as values. A package that calls itself so speaks for all below it. Types
    alone are no import.
    """
    by_name = {module.name: module for module in modules}
    wrong = [
        f"{module.name} is called pure, but {reached} imports {name}"
        for module in modules
        if any(claims(by_name[name]) for name in parents(module.name) if name in by_name)
        for reached in reached_from(module.name, by_name)
        for name in by_name[reached].imports_at_run_time
        if name.partition(".")[0] in IMPURE
    ]

    assert not wrong, chr(10).join(wrong)


def claims(module: Source) -> bool:
    """Whether the first paragraph of a module's theory says that it is pure."""
    return CLAIM.search(theory(module).partition("\n\n")[0]) is not None


def reached_from(start: str, by_name: dict[str, Source]) -> set[str]:
    """Modules of ours that this one needs to run."""
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        name = ahead.pop()
        if name in by_name and name not in reached:
            reached.add(name)
            ahead += by_name[name].imports_at_run_time
    return reached


def test_each_package_states_its_layout(modules: list[Source]) -> None:
    """The table in a package's docstring has a line for each of its modules, and for no other.

    A line ends with "(pure)" where the module says so itself.
    """
    wrong = []
    for package in (module for module in modules if module.path.name == "__init__.py"):
        folder = package.path.parent
        parts = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
        parts |= {path.parent.name for path in folder.glob("*/__init__.py")}
        stated = set(ROW.findall(theory(package)))
        if stated != parts:
            wrong.append(f"{package.name}: {sorted(stated ^ parts)}")
        if not claims(package):
            said = {f"{package.name}.{name}" for name in CLAIMED_BY_ROW.findall(theory(package))}
            pure = {module.name for module in modules if is_part_of(module, package.name)}
            if said != pure:
                wrong.append(f"{package.name}: pure or not? {sorted(said ^ pure)}")

    assert not wrong, chr(10).join(wrong)


def is_part_of(module: Source, package: str) -> bool:
    """Whether a module, and no package, stands directly in a package and calls itself pure."""
    inside = module.name.rpartition(".")[0] == package
    return inside and module.path.name != "__init__.py" and claims(module)


def theory(module: Source) -> str:
    return ast.get_docstring(module.tree) or ""


def test_folders_have_few_modules(modules: list[Source]) -> None:
    """Folders have about a dozen modules at most."""
    sizes = Counter(
        module.path.parent for module in modules if not module.path.stem.startswith("__")
    )
    full = [f"{folder}: {size}" for folder, size in sizes.items() if size > MODULES_MAX]

    assert not full, chr(10).join(full)


def test_nothing_from_outside_is_unpickled_or_evaluated(modules: list[Source]) -> None:
    """A peer's bytes are data, never code."""
    wrong = [
        f"{module.name} imports {name}"
        for module in modules
        for name in module.imports
        if name.partition(".")[0] in {"pickle", "cPickle", "dill", "cloudpickle", "marshal"}
    ]

    assert not wrong, chr(10).join(wrong)


def test_every_module_is_used(modules: list[Source], others: list[Source]) -> None:
    """A module that nothing imports, and that is not a program, is dead."""
    project = tomllib.loads(ROOT_PYPROJECT.read_text())["project"]
    started = {script.partition(":")[0] for script in project["scripts"].values()}
    started |= {*project["entry-points"]["pytest11"].values()}
    used = {name for module in [*modules, *others] for name in module.imports}
    used |= {parent for name in used for parent in parents(name)}
    dead = [
        module.name
        for module in modules
        if module.name not in used | started | PUBLIC
        and not module.name.startswith("mqclient.commands.")  # loaded by name when typed
        and 'if __name__ == "__main__":' not in module.text
    ]

    assert not dead, chr(10).join(dead)


def parents(name: str) -> set[str]:
    parts = name.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}
