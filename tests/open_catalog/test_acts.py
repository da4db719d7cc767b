"""Changes of namespaces and views: done once under a key, all or nothing, and named in the audit."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.lake.books import Books
from tests.open_catalog.asking import VIEW, created, refused
from txsaga.catalog.routes import KEY
from txsaga.catalog.store import CatalogStore
from txsaga.errors import StoreUnavailable

pytestmark = pytest.mark.postgres
BANK = "/v1/namespaces/bank"
SHOP: dict[str, Any] = {"namespace": ["shop"], "properties": {}}
RENAMED = {
    "source": {"namespace": ["bank"], "name": "seen"},
    "destination": {"namespace": ["bank"], "name": "shown"},
}
OWNER = {"updates": [{"action": "set-properties", "updates": {"owner": "anna"}}]}
ACTS: dict[str, tuple[str, str, dict[str, Any] | None]] = {
    "create namespace": ("POST", "/v1/namespaces", SHOP),
    "drop namespace": ("DELETE", "/v1/namespaces/empty", None),
    "change namespace": ("POST", f"{BANK}/properties", {"updates": {"owner": "anna"}}),
    "create view": ("POST", f"{BANK}/views", {**VIEW, "name": "other"}),
    "change view": ("POST", f"{BANK}/views/seen", OWNER),
    "drop view": ("DELETE", f"{BANK}/views/seen", None),
    "rename view": ("POST", "/v1/views/rename", RENAMED),
}


@pytest.fixture
def asked(rest: httpx.Client) -> httpx.Client:
    """Give a catalog with a view and an empty namespace."""
    created(rest)
    assert rest.post(f"{BANK}/views", json=VIEW).status_code == 200
    assert rest.post("/v1/namespaces", json={"namespace": ["empty"], "properties": {}}).status_code == 200
    return rest


def ask(rest: httpx.Client, what: str, key: str | None = None) -> httpx.Response:
    """Ask for an act."""
    method, path, body = ACTS[what]
    return rest.request(method, path, json=body, headers={} if key is None else {KEY: key})


def audited(books: Books) -> set[tuple[str, str]]:
    """Return who has done what, as the audit says."""
    store = books.broker.kernel.store
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql(f"SELECT who, why FROM {store.namespace}.event WHERE what = 'COMMIT'")
        return {(who, why) for who, why in rows}


@pytest.mark.parametrize("what", ACTS)
def test_a_repeat_under_a_key_is_answered_and_not_done_again(asked: httpx.Client, books: Books, what: str) -> None:
    before = audited(books)
    with ThreadPoolExecutor(4) as clients:
        answers = [*clients.map(lambda _: ask(asked, what, "k"), range(4))]
    assert {each.is_success for each in answers} == {True}, [each.text for each in answers]
    assert len({each.text for each in answers}) == 1
    ((who, why),) = audited(books) - before
    assert who == "anybody@catalog"
    assert why.startswith(f"{what} ")


@pytest.mark.parametrize("what", [each for each in ACTS if not each.startswith("change")])
def test_an_act_without_a_key_is_refused_the_second_time(asked: httpx.Client, what: str) -> None:
    assert ask(asked, what).is_success
    assert ask(asked, what).status_code in (404, 409)


def test_a_key_is_good_for_one_request(asked: httpx.Client) -> None:
    assert ask(asked, "create namespace", "k").is_success
    assert refused(ask(asked, "drop view", "k")) == (422, "UnprocessableEntityException")
    answer = asked.post(f"{BANK}/tables", json={"name": "a", "schema": VIEW["schema"]}, headers={KEY: "k"})
    assert refused(answer) == (422, "UnprocessableEntityException")


def test_a_refusal_under_a_key_is_final(asked: httpx.Client) -> None:
    asked.delete(f"{BANK}/views/seen")
    assert refused(ask(asked, "rename view", "k"))[0] == 404
    assert asked.post(f"{BANK}/views", json=VIEW).status_code == 200
    assert refused(ask(asked, "rename view", "k")) == (409, "CommitFailedException")
    assert ask(asked, "rename view", "k2").is_success


def test_an_act_whose_record_fails_is_not_done(asked: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(store: CatalogStore, catalog: str, namespace: str, properties: Mapping[str, str]) -> None:
        create(store, catalog, namespace, properties)
        raise StoreUnavailable("out of luck")

    create = CatalogStore.create_namespace
    monkeypatch.setattr(CatalogStore, "create_namespace", fails)
    assert ask(asked, "create namespace", "k").status_code == 503
    monkeypatch.undo()
    assert asked.get("/v1/namespaces/shop").status_code == 404
    assert ask(asked, "create namespace", "k").is_success
