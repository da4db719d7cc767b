"""A workspace: many tables written by any engine, seen by nobody else, and published by one decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError

from tests.cli.program import environment, run
from tests.lake.books import LEDGER, POSTING, Books, rows
from tests.open_catalog.asking import change, refused
from tests.open_catalog.test_commits import arrow
from tests.open_catalog.test_cuts import ids, write
from txsaga.catalog.workspaces import Workspaces
from txsaga.errors import ConfigError, TableMoved

pytestmark = pytest.mark.postgres


@pytest.fixture
def workspaces(books: Books) -> Workspaces:
    books.create(LEDGER, POSTING)
    write(books, 1)
    return Workspaces(books.broker)


def within(rest: httpx.Client, name: str) -> RestCatalog:
    """Return the catalog of a workspace."""
    return RestCatalog(name, uri=str(rest.base_url), warehouse=f"workspace-{name}")


def append(catalog: RestCatalog, name: str, number: int) -> None:
    """Append a row."""
    table = catalog.load_table(name)
    table.append(arrow(table, number))


def test_what_is_written_in_a_workspace_becomes_visible_by_one_decision(
    rest: httpx.Client, books: Books, workspaces: Workspaces
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    catalog = within(rest, "april")
    append(catalog, LEDGER, 2)
    append(catalog, LEDGER, 3)
    append(catalog, POSTING, 2)
    assert (ids(catalog, LEDGER), ids(catalog, POSTING)) == ([1, 2, 3], [1, 2])
    assert (books.ids(), books.ids(POSTING)) == ([1], [1])
    assert [(str(each.table), each.added, each.removed, each.moved) for each in workspaces.diff("april")] == [
        (LEDGER, 2, 0, False),
        (POSTING, 1, 0, False),
    ]
    workspaces.publish("april", "anna")
    assert (books.ids(), books.ids(POSTING)) == ([1, 2, 3], [1, 2])
    assert "workspace-april" not in books.table().metadata.refs
    with pytest.raises(ConfigError, match="there is no workspace 'april'"):
        workspaces.diff("april")


def test_a_table_that_changed_meanwhile_keeps_all_from_being_published(
    rest: httpx.Client, books: Books, workspaces: Workspaces
) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    append(within(rest, "april"), POSTING, 2)
    books.append(9, table=POSTING)
    with pytest.raises(TableMoved, match=r"bank\.posting changed since workspace 'april' was begun"):
        workspaces.publish("april", "anna")
    assert (books.ids(), books.ids(POSTING)) == ([1], [1, 9])


def test_a_published_workspace_is_undone(rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    workspaces.publish("april", "anna")
    assert books.ids() == [1, 2]
    assert [str(each) for each in workspaces.undo("april", "anna")] == [LEDGER]
    assert (books.ids(), books.ids(POSTING)) == ([1], [1])


def test_what_was_built_on_since_is_not_undone(rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    workspaces.publish("april", "anna")
    books.append(3)
    with pytest.raises(TableMoved):
        workspaces.undo("april", "anna")
    assert books.ids() == [1, 2, 3]


def test_a_workspace_is_dropped(rest: httpx.Client, books: Books, workspaces: Workspaces) -> None:
    workspaces.create("april", ["bank.*"], "anna")
    append(within(rest, "april"), LEDGER, 2)
    assert workspaces.drop("april", "anna") == 2
    assert within(rest, "april").list_tables("bank") == []
    assert books.ids() == [1]


def test_what_a_table_shares_is_not_changed_in_a_workspace(
    rest: httpx.Client, books: Books, workspaces: Workspaces
) -> None:
    workspaces.create("april", ["bank.ledger"], "anna")
    path = "/v1/workspace-april/transactions/commit"
    for body in ({"table-changes": [change("ledger", n="1")]}, {"table-changes": [change("posting", n="1")]}):
        assert rest.post(path, json=body).status_code in (404, 406)
    assert refused(rest.delete("/v1/workspace-april/namespaces/bank/tables/ledger"))[0] == 406
    table = within(rest, "april").load_table(LEDGER)
    with pytest.raises(RESTError, match="UnsupportedOperationException"), table.update_schema() as update:
        update.rename_column("note", "remark")
    with pytest.raises(RESTError, match="UnsupportedOperationException"):
        table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "mine").commit()
    assert books.table().schema().find_field("note")


def test_a_workspace_needs_tables_with_rows(books: Books, workspaces: Workspaces) -> None:
    with pytest.raises(ConfigError, match="no table matches"):
        workspaces.create("april", ["nothing.*"], "anna")
    books.create("bank.empty")
    with pytest.raises(ConfigError, match=r"bank\.empty: a table without rows has no branch"):
        workspaces.create("april", ["bank.*"], "anna")
    with pytest.raises(ConfigError, match="can't be named"):
        workspaces.create("April!", ["*"], "anna")
    workspaces.create("april", ["bank.ledger"], "anna")
    with books.producer.transaction() as tx:
        tx.table("bank.empty").append(rows(1))
    with pytest.raises(ConfigError, match="choose another name"):
        workspaces.create("april", ["bank.*"], "anna")


def test_the_command_line_makes_shows_and_publishes_a_workspace(
    rest: httpx.Client, books: Books, workspaces: Workspaces, home_url: str, tmp_path: Path
) -> None:
    settings = environment(TXSAGA_URL=home_url, TXSAGA_WAREHOUSE=str(tmp_path / "warehouse"))

    def said(*words: str) -> Any:
        found = run("--json", "workspace", *words, env=settings)
        assert found.code == 0, found.err
        return json.loads(found.out)

    assert said("create", "april", "--table", "bank.*") == {"workspace": "april", "tables": [LEDGER, POSTING]}
    assert said("list") == [{"workspace": "april", "tables": 2}]
    append(within(rest, "april"), LEDGER, 2)
    (ledger, posting) = said("diff", "april")
    assert (ledger["table"], ledger["added"], posting["added"]) == (LEDGER, 1, 0)
    assert len(said("publish", "april")) == 2
    assert books.ids() == [1, 2]
    assert said("undo", "april") == {"workspace": "april", "undone": [LEDGER]}
    assert said("list") == []
