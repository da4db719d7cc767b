"""The lists of what must be shown do not contradict themselves, and say so when they do."""

from dataclasses import replace

import pytest

from tests.requirements.catalogue import Catalogue, CatalogueError, Row


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return Catalogue.load()


def test_the_lists_are_complete(catalogue: Catalogue) -> None:
    catalogue.check()
    assert sum(len(section.rows) for section in catalogue.sections) == 220
    assert len(catalogue.cases) == 157


def test_a_range_of_cases_is_written_out(catalogue: Catalogue) -> None:
    assert {"BRK-01", "BRK-64", "RC-J1", "RC-J14", "RC-X3"} <= set(catalogue.cases)


def test_every_title_is_one_short_line(catalogue: Catalogue) -> None:
    rows = [row for section in catalogue.sections for row in section.rows]
    titles = [row.title for row in (*rows, *catalogue.beyond, *catalogue.rules)]
    assert all(0 < len(title) <= 76 and "\n" not in title for title in titles)


@pytest.mark.parametrize(
    ("rules", "complaint"),
    [
        ((), "missing from the rows: R1, R10"),
        ((Row(id="R99", title="no such rule"),), "missing from the rows"),
    ],
)
def test_a_missing_row_is_named(catalogue: Catalogue, rules: tuple[Row, ...], complaint: str) -> None:
    with pytest.raises(CatalogueError, match=complaint):
        replace(catalogue, rules=rules).check()


def test_a_row_listed_twice_is_named(catalogue: Catalogue) -> None:
    with pytest.raises(CatalogueError, match=r"listed twice: R1$"):
        replace(catalogue, rules=(*catalogue.rules, catalogue.rules[0])).check()


def test_an_unknown_row_is_named(catalogue: Catalogue) -> None:
    with pytest.raises(CatalogueError, match="not one of the rows: R99"):
        replace(catalogue, rules=(*catalogue.rules, Row(id="R99", title="no such rule"))).check()


def test_a_subset_of_unknown_cases_is_named(catalogue: Catalogue) -> None:
    with pytest.raises(CatalogueError, match="no case: BRK-65"):
        replace(catalogue, decision_cases=("BRK-65",)).check()
