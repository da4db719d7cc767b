"""The catalog that a console serves beside its pages: for programs with a key of an account."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

import txsaga
from tests.console.listening import listening
from tests.lake.books import LEDGER, Books
from tests.open_catalog.asking import change, committed, created, refused
from txsaga.console.access import COOKIE, OwnGuard
from txsaga.console.app import create_app
from txsaga.console.home import Home
from txsaga.console.people import Credential, Person, Rank

pytestmark = pytest.mark.postgres
KEYS = {role: f"{role.name.lower()}.a-key" for role in Rank}


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


def test_a_session_of_a_browser_opens_nothing(console: httpx.Client, guard: OwnGuard) -> None:
    console.cookies.set(COOKIE, guard.session(Person("anna", Rank.ADMIN)))
    assert console.get(f"{str(console.base_url).removesuffix('/iceberg/')}/topics").status_code == 200
    assert refused(console.get("/v1/namespaces")) == (401, "NotAuthorizedException")
