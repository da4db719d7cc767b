"""A task lets a client of the open catalog join the transaction of its run."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from airflow.sdk import DAG
from pyiceberg.catalog.rest import RestCatalog

from tests.lake.books import LEDGER, Books
from tests.open_catalog import conftest
from tests.open_catalog.test_commits import arrow, joined
from tests.provider.house import House
from txsaga.provider import message_flow, publish, step

books, serve, rest = conftest.books, conftest.serve, conftest.rest
"""On the store of the house."""


def loading(rest: httpx.Client, seen: list[list[int]], *, good: bool) -> DAG:
    """Make a flow whose task appends to a table with PyIceberg, and looks at it as others do."""

    @message_flow(dag_id=f"loads_{good}".lower(), coordinated=True, schedule=None)
    def loads() -> None:
        @step.python
        def load(flow: Any) -> None:
            table = joined(rest, flow.token()).load_table(LEDGER)
            table.append(arrow(table, 1))

        @step.python
        def look() -> None:
            seen.append(ids(rest))
            if not good:
                raise ZeroDivisionError

        load() >> look() >> publish("loaded", b"1")

    return loads()


def ids(rest: httpx.Client) -> list[int]:
    """Return the rows that a client without a token reads."""
    table = RestCatalog("home", uri=str(rest.base_url)).load_table(LEDGER)
    return list(table.scan().to_arrow().column("id").to_pylist())


@pytest.mark.parametrize("good", [True, False])
def test_what_a_client_commits_in_a_task_is_visible_with_the_end_of_the_flow_or_never(
    house: House, books: Books, rest: httpx.Client, good: bool
) -> None:
    books.create()
    house.topic("loaded")
    seen = list[list[int]]()
    run = house.run(loading(rest, seen, good=good))
    assert (run.state, run.tasks["load"]) == ("success" if good else "failed", "success"), run.tasks
    assert seen == [[]]
    assert ids(rest) == ([1] if good else [])
    assert house.seen("loaded") == ([b"1"] if good else [])
