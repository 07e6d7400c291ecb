"""The help of our programs: paragraphs as wide as the terminal, examples as they were written.

Docstrings are wrapped for an editor. cyclopts prints plain text line by line, so that a terminal of
80 columns would break each line a second time. Markdown would flow, but would also take a `*` or a
`<name>` for markup.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cyclopts.help.formatters import DefaultFormatter

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions

_KEPT = re.compile(r"^(?: |- )", re.MULTILINE)
"""A paragraph with such a line is an example or a list."""


class FlowingHelp(DefaultFormatter):
    """cyclopts' own formatter, for texts whose paragraphs flow."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print the table of a program's commands or parameters."""
        for entry in panel.entries:
            _flow(entry.description)
        super().__call__(console, options, panel)

    def render_description(
        self, console: Console, options: ConsoleOptions, description: Any
    ) -> None:
        """Print the text above the tables."""
        _flow(description)
        super().render_description(console, options, description)


def flowing(text: str) -> str:
    """A text whose paragraphs have one line each; examples and lists stay as they are."""
    paragraphs = re.split(r"\n{2,}", text)
    return "\n\n".join(
        each if _KEPT.search(each) else re.sub(r"(?<=\S)\n(?=\S)", " ", each) for each in paragraphs
    )


def _flow(description: Any) -> None:
    """Change a description in place, if it is plain text."""
    from rich.text import Text  # noqa: PLC0415 - rich is imported for a help alone

    text = getattr(description, "primary_renderable", None)
    if isinstance(text, Text):
        text.plain = flowing(text.plain)
