"""Iceberg's Go client, as published, against a catalog; test_credentials.py has it without keys for S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lake.books import Books
from tests.open_catalog.conftest import Serve
from tests.open_catalog.go_client import run_go
from txsaga.catalog.access import Clients

pytestmark = pytest.mark.postgres


def test_it_makes_changes_and_drops_tables(serve: Serve, books: Books, tmp_path: Path) -> None:
    (tmp_path / "clients").write_text("loader:x0Lm create=bank.*\n")
    address = str(serve(Clients.read(tmp_path / "clients")).base_url)
    said = run_go(address, "loader:x0Lm")
    assert said.pop("loaded") == "NoSuchTableException: Table does not exist: bank.gone"
    assert said == {"appended": "3", "deleted": "2", "main": "2", "audit": "3", "first": "3"}
    assert (books.ids("bank.sale"), books.ids("bank.refund")) == ([1, 4, 7], [7])
    sale = books.table("bank.sale")
    assert (sale.properties["kept"], [each.name for each in sale.schema().fields]) == ("yes", ["id", "note"])
    assert sorted(sale.refs()) == ["audit", "main"]
    assert books.table("bank.refund").properties["kind"] == "staged"
    assert not books.is_there("bank.old")
