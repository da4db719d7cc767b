"""Diagrams and tables that are written from the code say what the code says."""

from pathlib import Path

import pytest

from tests.bench.workloads import WORKLOADS
from tests.docs.generated import DOCS, PARTS, facts_table, pages, renewed
from tests.docs.parts import PART
from txsaga.core import facts

ADVICE = "run `python -m tests.docs.generated`"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_the_generated_parts_of_a_page_are_fresh(page: Path) -> None:
    text = page.read_text("utf-8")
    assert renewed(text) == text, ADVICE


def test_every_generated_part_stands_on_a_page_once() -> None:
    found = [part["name"] for page in pages() for part in PART.finditer(page.read_text("utf-8"))]
    assert sorted(found) == sorted([*PARTS, *WORKLOADS])


def test_a_stale_part_is_found() -> None:
    stale = "<!-- generated: facts -->\n| old |\n<!-- end -->\nby hand\n"
    assert renewed(stale) == f"<!-- generated: facts -->\n{facts_table()}\n<!-- end -->\nby hand\n"


def test_facts_come_in_pairs_so_that_each_stands_in_the_table() -> None:
    names = [fact.__name__ for fact in facts.ALL]
    assert [name for name in names if f"`{name}`" not in facts_table()] == []
    assert all(before.endswith("ing") for before in names[::2])
    assert not any(after.endswith("ing") for after in names[1::2])
