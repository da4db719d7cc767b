"""Books with gates; the process that judges is ended behind the last of them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lake.books import LEDGER, Books
from tests.lake.conftest import books, open_books, warehouse
from txsaga.gate import stop

__all__ = ["books", "open_books", "warehouse"]

IDS = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
NOTES = {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "note"}}


@pytest.fixture(scope="package", autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    stop()


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Give a way to save suites, as a project of Great Expectations keeps them."""
    monkeypatch.setenv("TXSAGA_SUITES", str(tmp_path / "suites"))
    (tmp_path / "suites").mkdir()

    def save(name: str, *expectations: dict[str, Any]) -> str:
        said = {"name": name, "expectations": list(expectations), "meta": {"great_expectations_version": "1.24.1"}}
        (tmp_path / "suites" / f"{name}.json").write_text(json.dumps(said), "utf-8")
        return name

    return save


@pytest.fixture
def ledger(books: Books) -> Books:
    """Give books with a ledger that nobody has written to."""
    books.create(LEDGER)
    return books
