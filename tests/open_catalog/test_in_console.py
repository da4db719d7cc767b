"""The catalog that a console serves beside its pages: for programs with a key of an account."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from starlette.routing import Mount

import txsaga
from tests.console.listening import listening
from tests.lake.books import LEDGER, Books
from tests.open_catalog.asking import change, committed, created, refused
from tests.open_catalog.fuzzing import FUZZ, any_request, assert_answers
from tests.open_catalog.route_table import NEEDS, PREFIXES, ask, assert_served, keep_moments, prepare, rows_of, served
from txsaga.console.access import COOKIE, OwnGuard
from txsaga.console.app import create_app
from txsaga.console.home import Home
from txsaga.console.people import Credential, Person, Rank

pytestmark = pytest.mark.postgres
LEAST = {"": Rank.VIEWER, "read": Rank.VIEWER, "write": Rank.OPERATOR, "create": Rank.ADMIN}
"""The role that has each right."""
KEYS = {role: f"{role.name.lower()}.a-key" for role in Rank}


def mounted() -> FastAPI:
    """Return the catalog of a console."""
    console = create_app(Home(lambda: pytest.fail("nothing is asked"), env={}), OwnGuard(accounts={}))
    (mount,) = [each for each in console.routes if isinstance(each, Mount) and each.path == "/iceberg"]
    assert isinstance(mount.app, FastAPI)
    return mount.app


ROUTES = served(mounted(), *PREFIXES)


@pytest.fixture
def guard() -> OwnGuard:
    accounts = [Credential.made(role.name.lower(), role, "a-key", key=True) for role in Rank]
    return OwnGuard(accounts={each.name: each for each in accounts})


@pytest.fixture
def console(home_url: str, books: Books, guard: OwnGuard) -> Iterator[httpx.Client]:
    home = Home(
        lambda: txsaga.connect(
            home_url, warehouse=books.lake.warehouse.removeprefix("file://"), roles=False, answering=False, env={}
        ),
        env={},
    )
    with listening(create_app(home, guard)) as address, httpx.Client(base_url=f"{address}/iceberg") as client:
        yield client


def _as(client: httpx.Client, role: Rank | None) -> httpx.Client:
    client.headers["authorization"] = "Bearer none" if role is None else f"Bearer {KEYS[role]}"
    return client


def test_each_role_may_do_in_the_catalog_what_it_may_in_the_console(console: httpx.Client, books: Books) -> None:
    books.create(LEDGER)
    created(_as(console, Rank.ADMIN), "a")
    assert refused(_as(console, None).get("/v1/namespaces")) == (401, "NotAuthorizedException")
    assert refused(_as(console, Rank.CLIENT).get("/v1/namespaces")) == (403, "ForbiddenException")
    for role in (Rank.VIEWER, Rank.OPERATOR, Rank.ADMIN):
        assert _as(console, role).get("/v1/namespaces/bank/tables/ledger").status_code == 200
        assert (committed(console, change("a", n="1")).status_code == 204) is (role > Rank.VIEWER)
        assert (console.head("/v1/namespaces/bank/tables/a%2Fb").status_code) == 404
    assert refused(_as(console, Rank.OPERATOR).delete("/v1/namespaces/bank/tables/a")) == (403, "ForbiddenException")
    assert _as(console, Rank.ADMIN).delete("/v1/namespaces/bank/tables/a").status_code == 204


def test_no_route_serves_a_role_without_the_right(console: httpx.Client, books: Books) -> None:
    books.create("bank.a")
    keep_moments(books)
    admin = KEYS[Rank.ADMIN]
    prepare(console, admin)
    console.headers["x-below"] = books.table("bank.a").location().rpartition("/")[0]
    assert {route.name for route in ROUTES} == NEEDS.keys()
    before = rows_of(books)
    for route in ROUTES:
        assert {ask(console, route, wrong).status_code for wrong in (None, "nonsense", "admin.wrong")} == {401}, route
        for role in [each for each in Rank if each < LEAST[NEEDS[route.name]]]:
            assert_served(ask(console, route, KEYS[role]), route, may=False)
    assert rows_of(books) == before
    for route in sorted(ROUTES, key=lambda each: each.prefix is None):
        for role in [each for each in Rank if each >= LEAST[NEEDS[route.name]]]:
            if route.prefix is None:
                prepare(console, admin)
            assert_served(ask(console, route, KEYS[role]), route, may=True)


@FUZZ
@given(any_request(ROUTES))
def test_no_path_or_body_breaks_the_console(console: httpx.Client, asked: dict[str, Any]) -> None:
    assert_answers(_as(console, Rank.ADMIN).request(**asked))


def test_a_session_of_a_browser_opens_nothing(console: httpx.Client, guard: OwnGuard) -> None:
    console.cookies.set(COOKIE, guard.session(Person("anna", Rank.ADMIN)))
    assert console.get(f"{str(console.base_url).removesuffix('/iceberg/')}/topics").status_code == 200
    console.headers["x-below"] = "/nowhere"
    for route in ROUTES:
        assert ask(console, route, None).status_code == 401, route
