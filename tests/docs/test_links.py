"""Links between pages lead somewhere, and every page can be found from the first one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_snippets import PAGES, ROOT, name

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
INDEX = ROOT / "docs" / "index.md"


def links(page: Path) -> Iterator[str]:
    """Yield the targets of a page's links, code left out."""
    for target in LINK.findall(FENCED.sub("", page.read_text("utf-8"))):
        if "://" not in target:
            yield target.partition("#")[0]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert not [target for target in links(page) if not (page.parent / target).exists()]


def test_the_index_links_every_page() -> None:
    linked = {(INDEX.parent / target).resolve() for target in links(INDEX)}
    assert {page.resolve() for page in PAGES} - {ROOT / "README.md", INDEX} == linked


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](there.md) [b](https://example.org)\n```text\n[c](code.md)\n```\n")
    assert list(links(page)) == ["there.md"]
