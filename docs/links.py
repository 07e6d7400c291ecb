"""A hook of the site's build: links to files outside docs become their names.

On a page of the repository such a link opens the file; the site has no such file.
"""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:\.\./|(?!(?:tutorial|how-to|reference|explanation|notes)/))[^)]*\)"
)


def on_page_markdown(markdown: str, **_others: Any) -> str:
    """Replace each link that leads out of docs by its text."""
    return OUTSIDE.sub(r"\1", markdown)
