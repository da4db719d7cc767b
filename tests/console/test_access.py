"""Who gets in: every route and every role, found in the console's own description, so that no new one is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from tests.console.conftest import Enter
from tests.scene.shop import Shop
from txsaga.catalog.guess_limit import TRIES
from txsaga.console.access import COOKIE, OwnGuard
from txsaga.console.acts import ACTS
from txsaga.console.people import Credential, Person, Rank
from txsaga.errors import ConfigError

OPEN = {"/sign-in", "/enter"}
"""What a stranger gets: the ways in."""
ROLES = {
    Rank.OPERATOR: "settle resume commit rollback replay resume-step skip-step forget "
    "replay-letter pause-group resume-group",
    Rank.ADMIN: "purge-letter purge-topic delete-topic delete-group",
}
"""The role that each act needs."""
PEOPLE = [None, *Rank]


def routes(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Yield every route, as method and path with values in it."""
    for route in app.routes:
        if isinstance(route, APIRoute):
            for method in sorted(route.methods):
                for name in [*ACTS] if "{name}" in route.path else [""]:
                    yield (
                        method,
                        route.path.replace("{id}", "1").replace("{name}", f"{name}?id=1" if method == "GET" else name),
                    )


def needed(path: str) -> Rank:
    """Return the role that a path needs."""
    if path.startswith("/api/v1/messages") or path == "/api/v1/openapi.json":
        return Rank.CLIENT
    for part in path.split("?")[0].split("/"):
        if part in ACTS:
            return next(role for role, acts in ROLES.items() if part in acts.split())
    return Rank.OPERATOR if path.endswith("/messages") or "/letters/" in path else Rank.VIEWER


def test_nobody_passes_a_route_that_is_not_theirs(shop: Shop, enter: Enter, console: FastAPI) -> None:
    shop.producer().send("news", b"a")
    seen = 0
    for person in PEOPLE:
        client = enter(person)
        for method, path in routes(console):
            if path in OPEN or (person is not None and path in ("/api/v1/events", "/sign-out")):
                continue
            answer = client.request(method, path, json={"id": "1", "reason": ""} if method == "POST" else None)
            seen += 1
            page = "/api/" not in path
            if person is None:
                assert answer.status_code == (303 if page else 401), path
            elif person < needed(path) or (path.startswith("/api/v1/messages") and person is not Rank.CLIENT):
                assert answer.status_code == 403, (person, path)
            else:
                assert answer.status_code != 403, (person, path, answer.text)
    assert seen > 100


def test_the_description_says_which_requests_take_a_key(enter: Enter, console: FastAPI) -> None:
    described = enter(Rank.CLIENT).get("/api/v1/openapi.json").json()
    scheme = described["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"], scheme["bearerFormat"]) == ("http", "bearer", "NAME.SECRET")
    assert all(path.startswith("/api/v1/") for path in described["paths"])
    assert {str(found) for found in secured(described).values()} == {"[{'key': []}]"}
    console.openapi_schema = None
    for route in console.routes:
        route.include_in_schema = True  # type: ignore[attr-defined]
    assert {path for (path, _), found in secured(console.openapi()).items() if not found} == OPEN


def test_the_description_says_what_is_returned_and_how_a_refusal_looks(enter: Enter) -> None:
    for path, methods in enter(Rank.VIEWER).get("/api/v1/openapi.json").json()["paths"].items():
        for method, said in methods.items():
            answers = said["responses"]
            for status, answer in answers.items():
                (content,) = answer["content"].values()
                assert content["schema"], (path, method, status)
                if status != "200" and not status.startswith("201"):
                    assert content["schema"]["required"] == ["error"], (path, method, status)
            assert "422" not in answers or path.startswith("/api/v1/messages"), path
    broken = enter(Rank.VIEWER).get("/api/v1/letters?before=x")
    assert (broken.status_code, [*broken.json()]) == (400, ["error"])


def secured(described: Mapping[str, Any]) -> Mapping[tuple[str, str], Any]:
    """Return what each request of a description takes as a key."""
    return {
        (path, method): said.get("security")
        for path, methods in described["paths"].items()
        for method, said in methods.items()
    }


def test_what_changes_something_wants_the_token_of_the_session(enter: Enter, console: FastAPI) -> None:
    client = enter(Rank.ADMIN)
    posts = [path for method, path in routes(console) if method == "POST" and path not in OPEN]
    for path, token in product(posts, ["", "wrong"]):
        if path == "/sign-out":
            continue
        answer = client.post(path, json={"id": "1", "reason": "why"}, headers={"x-txsaga-token": token})
        assert answer.status_code == 403
        assert "load it again" in answer.text


@pytest.mark.parametrize("cookie", ["", ".", "a.b", "e30=.00"])
def test_a_cookie_that_was_made_elsewhere_is_nobody(enter: Enter, guard: OwnGuard, cookie: str) -> None:
    client = enter(None)
    client.headers["cookie"] = f"{COOKIE}={cookie}"
    assert client.get("/api/v1/status").status_code == 401
    client.headers["cookie"] = f"{COOKIE}={OwnGuard().session(Person('eve', Rank.ADMIN))}"
    assert client.get("/api/v1/status").status_code == 401


def test_a_person_signs_in_with_a_password_and_out(enter: Enter, guard: OwnGuard) -> None:
    guard.accounts = {"ann": Credential.made("ann", Rank.OPERATOR, "a long password")}
    client = enter(None)
    assert client.get("/groups?x=1").headers["location"].endswith("/sign-in?next=%2Fgroups%3Fx%3D1")
    inside = client.post("/sign-in", data={"name": "ann", "password": "a long password", "next": "/groups"})
    assert inside.headers["location"] == "/groups"
    client.cookies.clear()
    wrong = client.post("/sign-in", data={"name": "ann", "password": "another one"})
    assert (wrong.status_code, "Name or password is wrong" in wrong.text) == (401, True)
    assert client.post("/sign-in", data={"name": "ann", "password": "a long password"}).status_code == 303
    page = client.get("/")
    assert "ann · operator" in page.text
    cookie = client.cookies[COOKIE]
    assert client.post("/sign-out").status_code == 303
    assert client.get("/").status_code == 303
    client.cookies.set(COOKIE, cookie)
    assert client.get("/").status_code == 303


@pytest.mark.parametrize("next", ["https://evil.example/", "//evil.example", "/\\evil.example", ""])
def test_nobody_is_led_elsewhere(enter: Enter, guard: OwnGuard, next: str) -> None:
    guard.accounts = {"ann": Credential.made("ann", Rank.OPERATOR, "a long password")}
    said = {"name": "ann", "password": "a long password", "next": next}
    assert enter(None).post("/sign-in", data=said).headers["location"] == "/"


def test_guessing_is_slowed_down(enter: Enter, guard: OwnGuard) -> None:
    guard.accounts = {"ann": Credential.made("ann", Rank.OPERATOR, "a long password")}
    client = enter(None)
    codes = [
        client.post("/sign-in", data={"name": "ann", "password": f"guess {at}"}).status_code for at in range(TRIES + 1)
    ]
    assert codes == [401] * (TRIES - 1) + [429] * 2
    assert client.post("/sign-in", data={"name": "ann", "password": "a long password"}).status_code == 429


def test_another_site_can_not_sign_somebody_in(enter: Enter, guard: OwnGuard) -> None:
    guard.accounts = {"eve": Credential.made("eve", Rank.OPERATOR, "a long password")}
    said = {"name": "eve", "password": "a long password"}
    assert enter(None).post("/sign-in", data=said, headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_the_link_lets_in_who_has_it(enter: Enter, guard: OwnGuard) -> None:
    guard.link = "a-secret"
    client = enter(None)
    assert client.get("/enter?link=another").status_code == 401
    answer = client.get("/enter?link=a-secret")
    assert answer.status_code == 303
    assert all(word in answer.headers["set-cookie"].lower() for word in ("httponly", "samesite=lax"))
    assert client.get("/").status_code == 200


def test_a_program_has_a_key_and_needs_no_token(shop: Shop, enter: Enter, guard: OwnGuard) -> None:
    receipt = shop.mq_producer().prepare_now("orders", b"a")
    guard.accounts = {"ci": Credential.made("ci", Rank.OPERATOR, "a-key", key=True)}
    client = enter(None)
    client.headers["authorization"] = "Bearer ci.a-key"
    done = client.post("/api/v1/acts/rollback", json={"id": str(receipt.txid), "reason": "a test"})
    assert (done.status_code, "ROLLBACK" in done.json()["told"]) == (200, True)
    assert shop.pending() == []
    client.headers["authorization"] = "Bearer ci.another"
    assert client.get("/api/v1/status").status_code == 401


def test_a_proxy_names_the_person(enter: Enter, guard: OwnGuard) -> None:
    guard.header, guard.role_header = "x-user", "x-role"
    client = enter(None)
    assert client.get("/api/v1/status").status_code == 401
    client.headers["x-user"] = "ann"
    assert client.get("/api/v1/status").status_code == 200
    assert client.get("/acts/commit?id=1").status_code == 403
    client.headers["x-role"] = "operator"
    assert "operator" in client.get("/").text
    twice = [("x-user", "ann"), ("x-role", "admin"), ("x-role", "operator")]
    assert client.get("/api/v1/status", headers=twice).status_code == 401
    guard.accounts = {"ci": Credential.made("ci", Rank.VIEWER, "a-key", key=True)}
    assert client.get("/api/v1/status", headers={"authorization": "Bearer ci.a-key"}).status_code == 200


@pytest.mark.parametrize("line", ["ann", "ann:operator", "ann:king:scrypt$a$b", ":viewer:scrypt$a$b"])
def test_a_malformed_account_is_refused(tmp_path: object, line: str) -> None:
    from pathlib import Path

    from txsaga.console.people import read_accounts

    file = Path(str(tmp_path)) / "accounts"
    file.write_text(f"# people\n\n{line}\n")
    with pytest.raises(ConfigError):
        read_accounts(file)


def test_every_answer_carries_its_headers(enter: Enter) -> None:
    for person in PEOPLE:
        answer = enter(person).get("/topics")
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
