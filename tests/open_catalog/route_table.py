"""Every route that the catalog serves, under each prefix: who may use it, and a body that it accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.lake.books import Books
from tests.open_catalog.asking import SCHEMA, VIEW, change
from txsaga.catalog.cuts import KeptCuts
from txsaga.catalog.workspaces import Workspaces

NEEDS = {
    "config": "",
    "list_namespaces": "",
    "create_namespace": "create",
    "load_namespace": "read",
    "has_namespace": "read",
    "drop_namespace": "create",
    "change_properties": "create",
    "list_tables": "read",
    "create_table": "create",
    "register_table": "create",
    "load_table": "read",
    "has_table": "read",
    "commit_table": "write",
    "drop_table": "create",
    "credentials": "read",
    "report_metrics": "read",
    "rename_table": "create",
    "commit_tables": "write",
    "list_views": "read",
    "create_view": "create",
    "register_view": "create",
    "load_view": "read",
    "has_view": "read",
    "commit_view": "write",
    "drop_view": "create",
    "rename_view": "create",
}
"""The right that each route needs on the table bank.a or the view bank.seen."""
OPEN = {"tokens"}
"""What a stranger may ask for."""
PREFIXES = ("cut-monday", "workspace-april")
FOLDER = "FOLDER"
"""Stands in a body for the folder of the namespace."""
BODIES: dict[str, Any] = {
    "create_namespace": {"namespace": ["bank", "new"], "properties": {}},
    "change_properties": {"removals": ["b"], "updates": {"a": "b"}},
    "create_table": {"name": "new", "schema": SCHEMA},
    "register_table": {"name": "new", "metadata-location": f"{FOLDER}/nowhere"},
    "register_view": {"name": "new", "metadata-location": f"{FOLDER}/nowhere"},
    "commit_table": {"requirements": [], "updates": []},
    "commit_view": {"requirements": [], "updates": []},
    "report_metrics": {"report-type": "scan-report"},
    "create_view": VIEW,
    "commit_tables": {"table-changes": [change("a", n="1")]},
    **{
        f"rename_{kind}": {
            "source": {"namespace": ["bank"], "name": name},
            "destination": {"namespace": ["bank"], "name": "b"},
        }
        for kind, name in (("table", "a"), ("view", "seen"))
    },
}


Name = str | bytes


class Served(NamedTuple):
    """A route under a prefix; its path still has the places for names."""

    name: str
    method: str
    path: str
    prefix: str | None = None

    def about(self, namespace: Name = "bank", table: Name = "", prefix: Name = "") -> str:
        """Return its path with these names, or those of what the bodies are for."""
        names = {
            "namespace": namespace,
            "table": table or ("seen" if "view" in self.name else "a"),
            "prefix": prefix or self.prefix or "",
        }
        return self.path.format_map({key: quote(name, safe="") for key, name in names.items()})


def served(app: FastAPI, *prefixes: str) -> list[Served]:
    """Return all routes of an application, each of those with a prefix for all of these prefixes."""
    return list(_served(app, prefixes))


def _served(app: FastAPI, prefixes: tuple[str, ...]) -> Iterator[Served]:
    for route in app.routes:
        if not isinstance(route, APIRoute) or route.name not in NEEDS.keys() | OPEN:
            pytest.fail(f"{route} has no line in NEEDS: say which right it needs")
        if route.body_field is not None and route.name not in BODIES:
            pytest.fail(f"{route.path} has no line in BODIES: say what it accepts")
        (method,) = route.methods
        if "{prefix}" not in route.path:
            yield Served(route.name, method, route.path)
        for each in prefixes if "{prefix}" in route.path else ():
            yield Served(route.name, method, route.path, each)


def keep_moments(books: Books) -> None:
    """Keep a table in a cut and in a workspace: what the prefixes are for."""
    books.append(1, table="bank.a")
    KeptCuts(books.broker).keep("monday", ["bank.*"], lease=None, who="anna")
    Workspaces(books.broker).create("april", ["bank.*"], "anna")


def prepare(rest: httpx.Client, token: str) -> None:
    """Create the table and the view again that an earlier request may have dropped or renamed."""
    headers = {"authorization": f"Bearer {token}"}
    rest.post("/v1/namespaces/bank/tables", json={"name": "a", "schema": SCHEMA}, headers=headers)
    rest.post("/v1/namespaces/bank/views", json=VIEW, headers=headers)


def ask(rest: httpx.Client, route: Served, token: str | None, bodies: Mapping[str, Any] = BODIES) -> httpx.Response:
    """Send a request that the route accepts of those who may."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    body = json.dumps(bodies.get(route.name)).replace(FOLDER, rest.headers["x-below"])
    headers["content-type"] = "application/json"
    return rest.request(route.method, route.about(), content=body, headers=headers)


def rows_of(books: Books) -> list[Any]:
    """Return all that the catalog stores of tables, views and namespaces."""
    store = books.broker.kernel.store
    with store.engine.connect() as connection:
        return [
            connection.exec_driver_sql(f"SELECT * FROM {store.namespace}.{table} ORDER BY 1, 2, 3").all()
            for table in ("iceberg_tables", "iceberg_namespace_properties", "moment")
        ]


def assert_served(answer: httpx.Response, route: Served, *, may: bool) -> None:
    """Check that an answer is what a client with a right gets, or one without: in a prefix little can be changed."""
    refusals, done = {403}, {200, 204, 404, 409}
    if route.prefix is not None and route.method not in ("GET", "HEAD"):
        refusals, done = {403, 406}, done | {406}
    assert answer.status_code in (done if may else refusals), (route, answer.request.headers, answer.text)
