"""Links between pages lead to a page and to a heading in it, and every page can be found from the first one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_snippets import PAGES, ROOT, name

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
INDEX = ROOT / "docs" / "index.md"
GLOSSARY = ROOT / "docs" / "glossary.md"


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links, code left out."""
    for target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if "://" not in target:
            yield target


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    headings = HEADING.findall(FENCED.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, target: str) -> bool:
    """Say whether a link's page exists, and has its heading."""
    name, _, anchor = target.partition("#")
    other = page.parent / name if name else page
    return other.exists() and (not anchor or anchor in anchors(other))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert not [target for target in links(page) if not leads_somewhere(page, target)]


def test_the_index_links_every_page() -> None:
    linked = {(INDEX.parent / target).resolve() for target in links(INDEX)}
    assert {page.resolve() for page in [*PAGES, ROOT / "SECURITY.md"]} - {INDEX} == linked


def test_each_term_of_the_glossary_links_a_page_and_each_explanation_links_the_glossary() -> None:
    rows = [row for row in GLOSSARY.read_text("utf-8").splitlines()[6:] if row]
    assert rows and not [row for row in rows if not re.match(r"\| \[[^]]+\]\(", row)]
    assert not [page for page in GLOSSARY.parent.glob("explanation/*.md") if "../glossary.md" not in links(page)]


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `x` here\n[a](there.md) [b](https://example.org)\n[d](#one-x-here) [e](#two)\n"
        "```text\n[c](code.md)\n```\n"
    )
    assert [target for target in links(page) if not leads_somewhere(page, target)] == ["there.md", "#two"]
