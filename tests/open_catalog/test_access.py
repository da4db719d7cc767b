"""Who may do what: every route of the table of routes, for every kind of client."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.rest import RestCatalog

from tests.lake.books import LEDGER, Books
from tests.open_catalog.asking import SCHEMA, VIEW, change, committed, created, loaded, refused
from tests.open_catalog.conftest import Serve
from txsaga.catalog import access
from txsaga.catalog.access import Clients
from txsaga.catalog.guess_limit import FROM_ADDRESS, TRIES
from txsaga.catalog.routes import router
from txsaga.console.queries import ConsoleQueries
from txsaga.errors import ConfigError
from txsaga.gateway.access_keys import AccessKey

pytestmark = pytest.mark.postgres
CLIENTS = """# clients of the catalog
reader:r read=bank.*
writer:w write=bank.*
owner:o create=bank.*
stranger:s create=shop.*
admin:a
"""
NEEDS = {
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
"""The right that each route needs on bank.a."""
ROUTES = [each for each in router.routes if isinstance(each, APIRoute)]
BODIES: dict[str, Any] = {
    "create_namespace": {"namespace": ["bank", "new"], "properties": {}},
    "change_properties": {"removals": [], "updates": {"a": "b"}},
    "create_table": {"name": "new", "schema": SCHEMA},
    "register_table": {"name": "new", "metadata-location": "BELOW/nowhere"},
    "register_view": {"name": "new", "metadata-location": "BELOW/nowhere"},
    "commit_table": {"requirements": [], "updates": []},
    "commit_view": {"requirements": [], "updates": []},
    "report_metrics": {"report-type": "scan-report"},
    "create_view": VIEW,
    "commit_tables": {"table-changes": [change("a", n="1")]},
    **{
        f"rename_{kind}": {
            "source": {"namespace": ["bank"], "name": "a"},
            "destination": {"namespace": ["bank"], "name": "b"},
        }
        for kind in ("table", "view")
    },
}


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    file = tmp_path / "clients"
    file.write_text(CLIENTS)
    return Clients.read(file)


@pytest.fixture
def guarded(serve: Serve, clients: Clients) -> Iterator[httpx.Client]:
    rest = serve(clients)
    rest.headers["authorization"] = "Bearer admin:a"
    created(rest, "a")
    rest.headers["x-below"] = loaded(rest, "a")["location"].rpartition("/")[0]  # where files of bank are
    del rest.headers["authorization"]
    yield rest


def ask(rest: httpx.Client, route: APIRoute, token: str | None) -> httpx.Response:
    """Send a request to a route, about bank.a."""
    path = route.path.format(namespace="bank", table="a")
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    (method,) = route.methods
    body = json.dumps(BODIES.get(route.name)).replace("BELOW", rest.headers["x-below"])
    return rest.request(method, f"/v1{path}", content=body, headers={**headers, "content-type": "application/json"})


def test_the_table_of_rights_has_every_route() -> None:
    assert sorted(NEEDS) == sorted(route.name for route in ROUTES)


def test_no_route_serves_a_client_without_the_right(guarded: httpx.Client, clients: Clients) -> None:
    may = {"": ("reader", "writer", "owner", "stranger"), "read": ("reader", "writer", "owner")}
    may |= {"write": ("writer", "owner"), "create": ("owner",)}
    for route in ROUTES:
        for token in (None, "nonsense", f"{route.name}:wrong", "a.b", clients.token("owner", "o")[:-1] + "!"):
            assert ask(guarded, route, token).status_code == 401, route.name
        for name in ("reader", "writer", "stranger", "owner"):
            answer = ask(guarded, route, f"{name}:{name[0]}")
            assert (answer.status_code != 403) is (name in may[NEEDS[route.name]]), (route.name, name, answer.text)
            assert answer.status_code < 500, (route.name, answer.text)


def test_a_list_shows_what_may_be_read(guarded: httpx.Client) -> None:
    asked = {name: {"authorization": f"Bearer {name}:{name[0]}"} for name in ("admin", "reader", "stranger")}
    guarded.post("/v1/namespaces", json={"namespace": ["shop"], "properties": {}}, headers=asked["admin"])
    seen = {name: guarded.get("/v1/namespaces", headers=headers).json() for name, headers in asked.items()}
    assert seen["admin"] == {"namespaces": [["bank"], ["shop"]]}
    assert (seen["reader"], seen["stranger"]) == ({"namespaces": [["bank"]]}, {"namespaces": [["shop"]]})


def test_a_commit_needs_its_right_on_every_table(guarded: httpx.Client) -> None:
    body = {"table-changes": [change("a", n="1"), change("a", namespace="shop", n="1")]}
    answer = guarded.post("/v1/transactions/commit", json=body, headers={"authorization": "Bearer owner:o"})
    assert refused(answer) == (403, "ForbiddenException")


def test_a_client_of_one_namespace_reaches_no_files_of_others(guarded: httpx.Client) -> None:
    owner = {"authorization": "Bearer owner:o"}
    place = guarded.get("/v1/namespaces/bank/tables/a", headers=owner).json()["metadata"]["location"]
    elsewhere = f"{place.rpartition('/bank/')[0]}/shop/b"
    bank, table = "/v1/namespaces/bank", "/v1/namespaces/bank/tables/a"
    new = {"name": "new", "schema": SCHEMA}
    for method, path, body in (
        ("POST", f"{bank}/tables", {**new, "location": elsewhere}),
        ("POST", f"{bank}/tables", {**new, "location": f"{place}/../../shop/b"}),
        ("POST", f"{bank}/tables", {**new, "properties": {"write.metadata.path": elsewhere}}),
        ("POST", f"{bank}/views", {**VIEW, "location": elsewhere}),
        ("POST", f"{bank}/register", {"name": "new", "metadata-location": f"{elsewhere}/metadata/1.metadata.json"}),
        ("POST", f"{bank}/register-view", {"name": "new", "metadata-location": f"{elsewhere}/metadata/1.json"}),
        ("POST", f"{bank}/properties", {"updates": {"location": elsewhere}}),
        ("POST", "/v1/namespaces", {"namespace": ["bank", "new"], "properties": {"location": elsewhere}}),
        ("POST", table, {"updates": [{"action": "set-location", "location": elsewhere}]}),
        ("POST", table, {"updates": [{"action": "set-properties", "updated": {"write.metadata.path": elsewhere}}]}),
        ("POST", table, {"updates": [{"action": "add-snapshot", "snapshot": {"manifest-list": elsewhere}}]}),
        ("POST", table, {"updates": [{"action": "set-properties", "updates": {"write.data.path": elsewhere}}]}),
        ("DELETE", f"{table}?purgeRequested=true", None),
    ):
        assert refused(guarded.request(method, path, json=body, headers=owner)) == (403, "ForbiddenException"), path
    mine = f"{place.rpartition('/')[0]}/mine"
    for method, path, body in (
        ("POST", f"{bank}/tables", {**new, "location": place}),  # of another table, perhaps one that was renamed
        ("POST", f"{bank}/views", {**VIEW, "location": place}),
        ("POST", f"{bank}/tables", {**new, "properties": {"write.data.path": f"{place}/"}}),
        ("POST", f"{bank}/tables", {**new, "properties": {"write.data.path": f"{place}/data"}}),
    ):
        assert refused(guarded.request(method, path, json=body, headers=owner)) == (403, "ForbiddenException"), path
    own = {**new, "location": mine}
    assert guarded.post(f"{bank}/tables", json=own, headers=owner).status_code == 200
    admin = {"authorization": "Bearer admin:a"}
    assert guarded.delete(f"{table}?purgeRequested=true", headers=admin).status_code == 204


def test_a_client_of_one_table_chooses_no_folder_of_another(serve: Serve) -> None:
    """Nor one of a table that keeps its metadata elsewhere: the catalog's rows name nothing but that."""
    rest = serve(Clients({"admin": AccessKey("a"), "single": AccessKey("s", {"create": ["bank.mine"]})}))
    admin, single = ({"authorization": f"Bearer {each}"} for each in ("admin:a", "single:s"))
    rest.post("/v1/namespaces", json={"namespace": ["bank"]}, headers=admin)
    new, tables = {"name": "other", "schema": SCHEMA}, "/v1/namespaces/bank/tables"
    root = rest.post(tables, json=new, headers=admin).json()["metadata"]["location"].rpartition("/")[0]
    apart = {**new, "name": "apart", "properties": {"write.metadata.path": f"{root}/notes/apart"}}
    place = rest.post(tables, json=apart, headers=admin).json()["metadata"]["location"]
    for chosen, status in ((place, 403), (f"{place}/data", 403), (f"{root}/my", 403), (f"{root}/mine/data", 200)):
        mine = {**new, "name": "mine", "properties": {"write.data.path": chosen}}
        assert rest.post(tables, json=mine, headers=single).status_code == status, chosen
    moved = {"updates": [{"action": "set-properties", "updates": {"write.data.path": f"{place}/data"}}]}
    assert refused(rest.post(f"{tables}/mine", json=moved, headers=single)) == (403, "ForbiddenException")


def test_each_client_has_its_own_keys(guarded: httpx.Client) -> None:
    for client in ("admin:a", "owner:o"):
        guarded.headers["authorization"] = f"Bearer {client}"
        assert committed(guarded, change("a", n=client), key="k").status_code == 204


def test_a_client_of_one_namespace_gives_no_table_the_name_of_anothers(guarded: httpx.Client) -> None:
    headers = {"authorization": "Bearer owner:o"}
    guarded.post("/v1/namespaces", json={"namespace": ["bank", "new"]}, headers={"authorization": "Bearer admin:a"})
    answer = guarded.post("/v1/namespaces/bank/tables", json={"name": "new.a", "schema": SCHEMA}, headers=headers)
    assert refused(answer) == (400, "BadRequestException")


def test_a_request_of_a_stranger_is_not_read(guarded: httpx.Client) -> None:
    answer = guarded.post("/v1/transactions/commit", content=b"[" * 7_000_000)
    assert refused(answer) == (401, "NotAuthorizedException")
    answer = guarded.post("/v1/oauth/tokens", content=b"a" * 70_000)
    assert answer.status_code == 413


def test_a_page_tells_no_name_that_may_not_be_read(guarded: httpx.Client) -> None:
    guarded.post("/v1/namespaces", json={"namespace": ["aa"]}, headers={"authorization": "Bearer admin:a"})
    answer = guarded.get("/v1/namespaces?pageSize=1", headers={"authorization": "Bearer reader:r"}).json()
    assert answer == {"namespaces": [["bank"]]}


def test_clients_get_tokens_for_their_credentials(
    guarded: httpx.Client, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = {"grant_type": "client_credentials", "client_id": "reader", "client_secret": "r"}
    token = guarded.post("/v1/oauth/tokens", data=form).json()["access_token"]
    ours = {"authorization": f"Bearer {token}"}
    assert guarded.get("/v1/namespaces/bank/tables/a", headers=ours).status_code == 200
    assert guarded.delete("/v1/namespaces/bank/tables/a", headers=ours).status_code == 403
    exchange = {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": token}
    assert guarded.post("/v1/oauth/tokens", data=exchange).status_code == 200
    basic = {"authorization": f"Basic {base64.b64encode(b'reader:r').decode()}"}
    assert guarded.post("/v1/oauth/tokens", data={"grant_type": "client_credentials"}, headers=basic).is_success
    wrong = guarded.post("/v1/oauth/tokens", data={**form, "client_secret": "w"})
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    assert guarded.post("/v1/oauth/tokens", data={"grant_type": "password"}).status_code == 400
    late = time.time() + access.LIFETIME + 1
    monkeypatch.setattr("time.time", lambda: late)
    assert guarded.get("/v1/namespaces/bank/tables/a", headers=ours).status_code == 401


@pytest.mark.parametrize("name", ["reader", "unknown"])
def test_who_guesses_secrets_has_to_wait(guarded: httpx.Client, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def by_form(secret: str, **headers: str) -> httpx.Response:
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": secret}
        return guarded.post("/v1/oauth/tokens", data=form, headers=headers)

    def by_token(secret: str, **headers: str) -> httpx.Response:
        return guarded.get("/v1/namespaces", headers={"authorization": f"Bearer {name}:{secret}", **headers})

    token = f"Bearer {by_form('r').json()['access_token']}" if name == "reader" else ""
    known = 200 if name == "reader" else 401
    clock = time.monotonic()
    monkeypatch.setattr("txsaga.catalog.guess_limit.monotonic", lambda: clock)
    answers = [(by_form, by_token)[each % 2](f"guess {each}") for each in range(TRIES)]
    assert [each.status_code for each in answers] == [401] * TRIES
    clock += 20.5
    for answer, line in ((by_form("r"), "error_description"), (by_token("r"), "error")):
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "40")
        assert "too many wrong secrets from 127.0.0.1; try again in 40 s" in str(answer.json()[line])
    assert refused(by_token("r")) == (429, "TooManyRequestsException")
    elsewhere = {"x-forwarded-for": "10.0.0.7"}  # as a reverse proxy says it
    assert by_token("r", **elsewhere).status_code == known
    if token:
        assert guarded.get("/v1/namespaces", headers={"authorization": token}).status_code == 200
    clock += 40
    assert (by_form("r").status_code, by_token("r").status_code) == (known, known)


def test_an_address_that_guesses_many_names_has_to_wait(guarded: httpx.Client) -> None:
    form = {"grant_type": "client_credentials", "client_secret": "guess"}
    codes = [
        guarded.post("/v1/oauth/tokens", data={**form, "client_id": f"client-{each}"}).status_code
        for each in range(FROM_ADDRESS + 1)
    ]
    assert codes == [401] * FROM_ADDRESS + [429]


def test_pyiceberg_signs_in(serve: Serve, clients: Clients, books: Books) -> None:
    books.create(LEDGER)
    uri = str(serve(clients).base_url)
    assert RestCatalog(
        "home", uri=uri, credential="reader:r", **{"oauth2-server-uri": f"{uri}/v1/oauth/tokens"}
    ).load_table(LEDGER).name() == ("bank", "ledger")
    assert RestCatalog("home", uri=uri, token=clients.token("reader", "r")).table_exists(LEDGER)


def test_servers_with_the_same_clients_accept_each_others_tokens(clients: Clients, tmp_path: Path) -> None:
    token = clients.token("reader", "r")
    same = Clients.read(tmp_path / "clients")
    assert same.client(token).name == "reader"
    (tmp_path / "clients").write_text(CLIENTS.replace("reader:r", "reader:new"))
    changed = Clients.read(tmp_path / "clients")
    with pytest.raises(Exception, match="no token that is good here"):
        changed.client(token)


def test_a_line_that_names_no_right_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "clients"
    file.write_text("reader:r look=bank.*\n")
    with pytest.raises(ConfigError, match=r"line 1 of .* is no right; write read, write, create"):
        Clients.read(file)


def test_places_may_be_spelled_as_hadoop_does(guarded: httpx.Client) -> None:
    below, headers = guarded.headers["x-below"], {"authorization": "Bearer owner:o"}
    assert below.startswith("file:///")
    body = {"name": "new", "schema": SCHEMA, "location": f"file:{below.removeprefix('file://')}/new"}
    assert guarded.post("/v1/namespaces/bank/tables", json=body, headers=headers).status_code == 200
    for place in ("file:/elsewhere/other", f"{body['location']}/../../shop/a"):
        answer = guarded.post(
            "/v1/namespaces/bank/tables", json={**body, "name": "other", "location": place}, headers=headers
        )
        assert refused(answer) == (403, "ForbiddenException"), place


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda some: st.lists(some) | st.dictionaries(st.text(), some),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(ROUTES), TEXT, TEXT, JSON)
def test_no_path_or_body_breaks_the_server(
    rest: httpx.Client, route: APIRoute, namespace: str, table: str, body: Any
) -> None:
    (method,) = route.methods
    quoted = {"namespace": quote(namespace, safe=""), "table": quote(table, safe="")}
    answer = rest.request(method, f"/v1{route.path.format(**quoted)}", json=body)
    assert answer.status_code < 500, answer.text


def test_text_that_can_not_be_stored_is_refused(rest: httpx.Client) -> None:
    said = '{"namespace": ["bank"], "properties": {"a": "\\ud800"}}'
    answer = rest.post("/v1/namespaces", content=said, headers={"content-type": "application/json"})
    assert refused(answer) == (400, "BadRequestException")


def test_what_is_no_json_and_what_is_not_served_is_said_so(rest: httpx.Client) -> None:
    answer = rest.post("/v1/namespaces", content="{", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "the body can't be read as JSON")
    assert refused(rest.get("/v1/nowhere")) == (404, "UnsupportedOperationException")
    assert refused(rest.put("/v1/namespaces")) == (405, "UnsupportedOperationException")


def test_the_audit_names_the_client_of_a_commit(guarded: httpx.Client, books: Books) -> None:
    headers = {"authorization": "Bearer writer:w"}
    answer = guarded.post("/v1/transactions/commit", json={"table-changes": [change("a", n="1")]}, headers=headers)
    assert answer.status_code == 204
    newest = ConsoleQueries.of(books.broker.kernel.store).audit(limit=1)
    assert [(each.what, each.who) for _, _, each in newest] == [("COMMIT", "writer@catalog")]
