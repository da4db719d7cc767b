"""
The parts of the reference that are written from the code; `python -m tests.docs.generated` writes them anew.

Such a part stands between `<!-- generated: name -->` and `<!-- end -->`. What is outside of these lines is
never touched.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from txsaga.model import facts
from txsaga.model.lifecycle import MESSAGE, TRANSACTION
from txsaga.model.topic import ALLOWED, TopicType, Way

DOCS = Path(__file__).parents[2] / "docs"
PART = re.compile(r"(?P<begin><!-- generated: (?P<name>[\w-]+) -->\n)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL)
CALLS: Mapping[Way, str] = {
    Way.PLAIN: "`send`, `submit`, `send_many`",
    Way.HALF: "`prepare`, `transaction`, `send_in_transaction`",
    Way.JOIN: "`join`",
}


def transaction_diagram() -> str:
    """Draw the lifecycle of a transaction."""
    return f"```mermaid\n{TRANSACTION.mermaid()}\n```"


def message_diagram() -> str:
    """Draw the lifecycle of a message."""
    return f"```mermaid\n{MESSAGE.mermaid()}\n```"


def facts_table() -> str:
    """List the facts in pairs: before and after."""
    rows = [(f"`{a.__name__}`", f"`{b.__name__}`", a.__doc__ or "", b.__doc__ or "") for a, b in facts.AFTER.items()]
    return table(("before", "after", "what is about to happen", "what is true from now on"), rows)


def topics_table() -> str:
    """Say which type takes which way of sending."""
    rows = [(f"`{type}`", *("yes" if type in ALLOWED[way] else "–" for way in Way)) for type in TopicType]
    return table(("type", *(f"{way.value}: {CALLS[way]}" for way in Way)), rows)


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Write a table."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


PARTS: Mapping[str, Callable[[], str]] = {
    "transaction": transaction_diagram,
    "message": message_diagram,
    "facts": facts_table,
    "topics": topics_table,
}


def renewed(text: str) -> str:
    """Write the generated parts of a page anew."""
    return PART.sub(lambda found: f"{found['begin']}{PARTS[found['name']]()}\n{found['end']}", text)


def pages() -> list[Path]:
    """Return the pages that have generated parts."""
    return [page for page in sorted(DOCS.rglob("*.md")) if PART.search(page.read_text("utf-8"))]


if __name__ == "__main__":
    for page in pages():
        page.write_text(renewed(page.read_text("utf-8")), "utf-8")
