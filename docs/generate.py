"""Write the pages of the reference that follow from the code: `python docs/generate.py`.

Commands come from the programs' own help, the Python API and errors from signatures and docstrings,
limits from the modules that hold every bound. A test compares the pages with what this writes, so
none can be out of date.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
from cyclopts import App
from rich.console import Console

import mqclient
from dledger.errors import DledgerError
from dledger.remoting.numbers import Int32, Int64, Port
from mqbroker import keys as broker_keys
from mqbroker.keys import BrokerKeys
from mqbroker.mqbroker import app as mqbroker
from mqchaos.mqchaos import app as mqchaos
from mqchaos.mqcluster import app as mqcluster
from mqclient.admin.session import Part
from mqclient.commands.mqadmin import COMMANDS, load_all
from mqclient.commands.mqadmin import app as mqadmin
from mqnamesrv import config as namesrv_keys
from mqnamesrv.config import NamesrvConfig
from mqnamesrv.mqnamesrv import app as mqnamesrv
from mqspark.mqaudit import app as mqaudit

REFERENCE = Path(__file__).parent / "reference"
WIDTH = 80
"""The width of helps and signatures, in characters: more has no room on a page of the site."""
PAGE_WIDTH = 120
UNITS = ("Milliseconds", "Hours", "Bytes", "Percent")
"""A meaning that begins with one of them tells the unit of its key."""
TYPES: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
}
LIMITS = {
    "The wire, files and programs": "dledger.limits",
    "Raft": "dledger.raft.limits",
    "Brokers": "mqbroker.limits",
    "Rates and traffic": "mqbroker.flow.limits",
    "Name servers": "mqnamesrv.limits",
    "Figures": "dledger.metrics.limits",
    "Clients": "mqclient.limits",
    "The audit and Spark": "mqspark.limits",
    "Chaos": "mqchaos.limits",
}
HEADERS = {
    "Messages in": "send",
    "Messages and offsets out": "consume",
    "POP": "pop",
    "Named producers": "once",
    "Groups and members": "group",
    "Name servers": "namesrv",
    "Administration": "admin",
    "Users": "access",
}
FIELDS: Mapping[Any, str] = {
    str: "text",
    bool: "true or false",
    Int32: "32 bits",
    Int64: "64 bits",
    Port: "a port",
}
FROM_HERE = "<!-- What follows is made by docs/generate.py; do not edit. -->\n"
EXAMPLE = re.compile(r"^::\n\n((?:    .*\n)+)", re.MULTILINE)
"""The example in a docstring."""
AMONG_OURSELVES = ("check_open", "stay_behind", "next_after", "give_back")
"""Methods of clients for the blocking clients and for forks, which no application calls."""
GENERATED = "<!-- Made by docs/generate.py; do not edit. -->\n"


def pages() -> dict[str, str]:
    """Each generated page: its file name below docs/reference, and its text."""
    return {
        "commands.md": commands(),
        "api.md": api(),
        "errors.md": errors(),
        "limits.md": limits(),
        "configuration.md": configuration(),
        "mqadmin.md": overview(),
        "wire.md": wire(),
    }


def commands() -> str:
    """Every command with its options, as `--help` prints them."""
    parts = [
        f"# Commands\n\n{GENERATED}\nEach command as its `--help` shows it. "
        "[mqadmin](mqadmin.md) has an overview.\n"
    ]
    load_all()
    for app in (mqnamesrv, mqbroker, mqcluster, mqadmin, mqchaos, mqaudit):
        parts.append(f"\n## {app.name[0]}\n\n```text\n{help_of(app, [])}\n```\n")
        for name in subcommands(app):
            parts.append(f"\n### {app.name[0]} {name}\n\n```text\n{help_of(app, [name])}\n```\n")
    return "".join(parts)


def overview() -> str:
    """The page of mqadmin, with an item for each command and each part of the administration."""
    page = (REFERENCE / "mqadmin.md").read_text()
    commands = [
        wrapped(what(name), f"- [`{name}`](commands.md#mqadmin-{name.lower()}): ")
        for name in COMMANDS
    ]
    parts = {name: part for name, part in vars(mqclient.Admin()).items() if isinstance(part, Part)}
    rows = [wrapped(calls(type(part)), f"- `{name}`: ") for name, part in parts.items()]
    return with_list(with_list(page, "commands", commands), "parts", rows)


def with_list(page: str, name: str, items: list[str]) -> str:
    """A page whose list between the marks of this name has these items."""
    begin, end = (f"<!-- {name} by docs/generate.py: {mark} -->\n" for mark in ("begin", "end"))
    before, rest = page.split(begin)
    return before + begin + "\n" + "\n".join(items) + "\n\n" + end + rest.split(end)[1]


def what(command: str) -> str:
    """The first sentence of a command's help."""
    text = inspect.getdoc(mqadmin[command].default_command) or ""
    return re.split(r"(?<=\.)\s", text)[0].replace("\n", " ")


def calls(part: type) -> str:
    """The calls of a part of the administration."""
    return ", ".join(f"`{name}`" for name in vars(part) if not name.startswith("_"))


def subcommands(app: App) -> list[str]:
    """The commands of a program, in the order of its help."""
    if app is mqadmin:
        return list(COMMANDS)
    return [name for name in app if not name.startswith("-")]


def help_of(app: App, tokens: list[str]) -> str:
    """The output of `PROGRAM TOKENS --help`, without colours, at a fixed width."""
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=False, color_system=None)
    app.help_print(tokens, console=console)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def api() -> str:
    """The public names of `mqclient`: signatures and docstrings."""
    parts = [
        f"# Python API\n\n{GENERATED}\nAll of this is imported from `mqclient`. "
        "`mqclient.blocking` has the same clients for\nprograms without an event loop: same names, "
        "no `await`.\nA task of trio is refused, and under asyncio a call holds up the event loop. "
        "[Errors](errors.md) has the exceptions.\n"
    ]
    for name in mqclient.__all__:
        value = getattr(mqclient, name)
        if inspect.isclass(value) and issubclass(value, Exception):
            continue
        parts.append(f"\n## {name}\n\n{signature(name, value)}{text_of(value)}")
        if inspect.isclass(value):
            parts.extend(members(value))
    return "".join(parts)


def members(class_: type) -> Iterator[str]:
    """A class's public methods and properties, in the order of the source."""
    seen: dict[str, Any] = {}
    for base in reversed(class_.__mro__[:-1]):
        if base.__module__.startswith(("mqclient", "dledger")):
            seen.update(
                (name, value)
                for name, value in vars(base).items()
                if name[0] != "_" and name not in AMONG_OURSELVES
            )
    for name, value in seen.items():
        if isinstance(value, property):
            yield f"\n### {class_.__name__}.{name}\n\n{text_of(value)}"
        elif inspect.isfunction(value):
            yield f"\n### {class_.__name__}.{name}()\n\n{signature(name, value)}{text_of(value)}"


def signature(name: str, value: Any) -> str:
    """A call as it is written, one parameter a line where it is long."""
    if not callable(value):
        return ""
    try:
        found = inspect.signature(value)
        given = [written(each) for key, each in found.parameters.items() if key != "self"]
    except NameError:  # of a struct whose types are imported for checkers alone
        given = list(value.__struct_fields__)
    except (TypeError, ValueError):
        return ""
    if any("<object object" in text or "<factory>" in text or " at 0x" in text for text in given):
        given = [re.sub(r" ?= ?<.*", " = ...", text) for text in given]
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    one_line = f"{prefix}{name}({', '.join(given)})"
    if len(one_line) > WIDTH:
        one_line = f"{prefix}{name}(\n" + "".join(f"    {text},\n" for text in given) + ")"
    return f"```text\n{one_line}\n```\n\n"


def written(parameter: inspect.Parameter) -> str:
    """A parameter as its source has it: an annotation that is a text has no quotes there."""
    annotation = parameter.annotation
    plain = getattr(annotation, "__forward_arg__", annotation)
    text = str(parameter)
    return text.replace(repr(annotation), plain, 1) if isinstance(plain, str) else text


def text_of(value: Any) -> str:
    """A docstring as Markdown; literal blocks stay as they are."""
    text = inspect.cleandoc(value.__doc__ or "")
    return EXAMPLE.sub(fenced, text).strip() + "\n" if text else ""


def fenced(example: re.Match[str]) -> str:
    """An example of a docstring as a block, which a test runs."""
    return f"```python\n{textwrap.dedent(example[1])}```\n"


def errors() -> str:
    """Every error that calls raise, as a tree."""
    parts = [
        f"# Errors\n\n{GENERATED}\nEvery error that a call of `mqclient` raises, importable from "
        "there. An error is *definite*\nif the operation certainly had no effect: then a message "
        "may be sent again without a second copy.\n\n| error | is a | definite |\n|---|---|---|\n"
    ]
    found = [
        value
        for name in mqclient.__all__
        if inspect.isclass(value := getattr(mqclient, name)) and issubclass(value, DledgerError)
    ]
    for error in found:
        base = next(base.__name__ for base in error.__mro__[1:] if issubclass(base, Exception))
        definite = "yes" if error.definite else "**no**"
        parts.append(f"| [`{error.__name__}`](#{error.__name__.lower()}) | {base} | {definite} |\n")
    for error in found:
        parts.append(f"\n## {error.__name__}\n\n{text_of(error)}")
    return "".join(parts)


def limits() -> str:
    """Every bound: its name, value and meaning."""
    parts = [
        f"# Limits\n\n{GENERATED}\nEvery buffer, queue, frame and wait has a bound. Units are in "
        "the names. A bound that a config\nkey changes is the default of that key "
        "([the broker](broker.md)).\n"
    ]
    for title, module in LIMITS.items():
        parts.append(f"\n## {title}\n\nIn `{module}`.\n\n")
        for name, value, meaning in bounds(module):
            parts.append(wrapped(f"{value}. {meaning}".rstrip(), f"- `{name}`: ") + "\n")
    return "".join(parts)


def bounds(module: str) -> Iterator[tuple[str, str, str]]:
    """(name, value, meaning) of each constant of a module."""
    found = importlib.import_module(module)
    assert found.__file__ is not None
    body = ast.parse(Path(found.__file__).read_text()).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        else:
            continue
        if not isinstance(target, ast.Name) or not target.id.isupper():
            continue
        value = getattr(found, target.id)
        if not isinstance(value, int | float):
            continue
        meaning = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            meaning = " ".join(str(following.value.value).split())
        yield target.id, f"{value:,}", meaning


def configuration() -> str:
    """Every key of the two config files: type, unit, bounds, default, meaning."""
    introduction = (
        "The config files of servers are TOML. An unknown key is refused by name, with the nearest "
        "key that exists. A key with dots may also be written as a table. A key changes when the "
        "server is restarted; the few that also change at run time say so. [The broker](broker.md) "
        "and [Security](../explanation/security.md) explain the keys together."
    )
    brokers = (
        "These keys are for `mqbroker -c FILE`. `mqadmin updateBrokerConfig` changes a key at run "
        "time on all replicas of the broker group."
    )
    namesrvs = (
        "These keys are for `mqnamesrv -c FILE`. `mqadmin updateNamesrvConfig` changes a key at "
        "run time, until the next start of the name server."
    )
    parts = [f"# Configuration\n\n{GENERATED}\n{wrapped(introduction)}\n"]
    parts += [f"\n## Brokers\n\n{wrapped(brokers)}\n\n"]
    parts += keys(BrokerKeys, broker_keys.RUNTIME_KEYS, broker_keys.BOUNDS)
    parts += [f"\n## Name servers\n\n{wrapped(namesrvs)}\n\n"]
    parts += keys(NamesrvConfig, namesrv_keys.RUNTIME_KEYS, {})
    return "".join(parts)


def keys(
    config: type[msgspec.Struct], at_run_time: frozenset[str], within: Mapping[str, tuple[int, int]]
) -> Iterator[str]:
    """An item of a list for each key, by name."""
    meanings = meanings_of(config)
    for field in sorted(msgspec.structs.fields(config), key=lambda each: each.encode_name.lower()):
        key, meaning = field.encode_name, meanings[field.name]
        said = [kind(field.type), *(unit.lower() for unit in UNITS if meaning.startswith(unit))]
        if key in within:
            said.append("{:,} to {:,}".format(*within[key]))
        default = "none" if field.default in ("", None) else f"`{json.dumps(field.default)}`"
        said += [f"default {default}", *(["**changes at run time**"] if key in at_run_time else [])]
        yield wrapped(f"{', '.join(said)}.", f"- `{key}`: ") + f"\n{wrapped(meaning, '  ')}\n"


def kind(type_: Any) -> str:
    """A key's type in words."""
    if type_ in TYPES:
        return TYPES[type_]
    if chosen := list(choices(type_)):
        return f"{', '.join(chosen[:-1])} or {chosen[-1]}"
    return " or ".join(TYPES[each] for each in get_args(type_) if each is not type(None))


def choices(type_: Any) -> Iterator[str]:
    """The values of a type that lists them, as TOML writes them."""
    for each in get_args(type_):
        if get_origin(type_) is Literal:
            yield f"`{json.dumps(each)}`"
        else:
            yield from choices(each)


def meanings_of(config: type[msgspec.Struct]) -> dict[str, str]:
    """Texts below the fields of a config and of its bases."""
    found: dict[str, str] = {}
    for base in reversed(config.__mro__):
        if issubclass(base, msgspec.Struct) and base is not msgspec.Struct:
            [class_] = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(class_, ast.ClassDef)
            for statement, following in zip(class_.body, class_.body[1:], strict=False):
                if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
                    assert isinstance(statement.target, ast.Name)
                    assert isinstance(following.value, ast.Constant)
                    found[statement.target.id] = " ".join(str(following.value.value).split())
    return found


def wire() -> str:
    """The page of the wire, with the fields of each header."""
    parts = [(REFERENCE / "wire.md").read_text().partition(FROM_HERE)[0] + FROM_HERE]
    for title, name in HEADERS.items():
        parts.append(f"\n## {title}\n")
        for class_ in vars(importlib.import_module(f"dledger.remoting.headers.{name}")).values():
            if inspect.isclass(class_) and class_.__module__.endswith(f".{name}"):
                parts.append(f"\n### {class_.__name__}\n\n{wrapped_text(text_of(class_))}\n")
                parts.append(fields_of(class_))
    return "".join(parts)


def wrapped_text(text: str) -> str:
    """A docstring's paragraphs in lines of a page."""
    return "\n\n".join(wrapped(" ".join(each.split())) for each in text.strip().split("\n\n"))


def fields_of(header: type[msgspec.Struct]) -> str:
    """Lines of a header's fields, required and optional ones."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for field in msgspec.structs.fields(header):
        given = [each for each in get_args(field.type) if each is not type(None)]
        type_ = given[0] if type(None) in get_args(field.type) else field.type
        word = FIELDS.get(type_, "a list" if get_origin(type_) in (list, tuple) else "text")
        found[field.required].append(f"`{field.encode_name}` ({word})")
    lines = [wrapped(f"{', '.join(found[True])}.", "- Required: ")] if found[True] else []
    lines += [wrapped(f"{', '.join(found[False])}.", "- Optional: ")] if found[False] else []
    return "".join(f"\n{line}" for line in lines) + ("\n" if lines else "")


def wrapped(text: str, before: str = "") -> str:
    """Text in lines of a page; all but the first begin below the first letter of an item."""
    behind = "  " if before else ""
    return textwrap.fill(
        text,
        PAGE_WIDTH,
        initial_indent=before,
        subsequent_indent=behind,
        break_long_words=False,
        break_on_hyphens=False,
    )


def main() -> None:
    """Write all generated pages to docs/reference."""
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)


if __name__ == "__main__":
    main()
