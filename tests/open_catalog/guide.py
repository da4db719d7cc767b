"""What the guide of the catalog shows for each engine."""

from __future__ import annotations

from pathlib import Path

from tests.docs.snippets import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "open-catalog.md"


def shown(beginning: str) -> str:
    """Return the block that begins so."""
    (found,) = [block.body for block in blocks(PAGE) if block.body.startswith(beginning)]
    return found
