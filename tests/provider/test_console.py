"""Who may do what in the console inside Airflow: Airflow's own tokens and roles, on every route."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, cast

import httpx
import pytest
from fastapi import FastAPI

import txsaga
from tests.console.listening import listening
from tests.console.test_access import needed, routes
from tests.provider.house import House
from txsaga import COMMIT
from txsaga.console.access import TOKEN
from txsaga.console.people import Rank
from txsaga.rocketmq import TransactionMQProducer

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),  # Airflow imports it
    pytest.mark.filterwarnings("ignore:The HMAC key is"),  # what Airflow makes up without a setting
]

RANKS = {None: Rank.VIEWER, "viewer": Rank.VIEWER, "user": Rank.OPERATOR, "op": Rank.ADMIN, "admin": Rank.ADMIN}
"""What each role of Airflow may do here."""
Log = Callable[..., httpx.Client]


@pytest.fixture
def manager(house: House) -> SimpleAuthManager:
    """Give what knows the people of this Airflow."""
    from airflow.api_fastapi.app import create_auth_manager

    return cast("SimpleAuthManager", create_auth_manager())


@pytest.fixture
def console(manager: SimpleAuthManager) -> Iterator[FastAPI]:
    """Give the console as the plugin makes it; what mounts it does not end it."""
    from txsaga.provider.console import console

    yield (app := console())
    app.state.home.close()


@pytest.fixture
def log_in(console: FastAPI, manager: SimpleAuthManager) -> Iterator[Log]:
    """Give a way to use the console as a person with a role in Airflow, by its cookie."""
    from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN

    server = FastAPI()
    server.mount("/txsaga", console)
    with ExitStack() as opened:
        address = f"{opened.enter_context(listening(server))}/txsaga"

        def log_in(role: str | None = None, token: str | None = None) -> httpx.Client:
            client = opened.enter_context(httpx.Client(base_url=address, headers={"accept": "text/html"}, timeout=30))
            client.cookies.set(COOKIE_NAME_JWT_TOKEN, token_of(manager, role) if token is None else token)
            page = client.get("/topics").text
            if 'data-token="' in page:
                client.headers[TOKEN] = page.split('data-token="')[1].split('"')[0]
            return client

        yield log_in


def token_of(manager: SimpleAuthManager, role: str | None, **more: int) -> str:
    """Return what Airflow gives a person who logs in."""
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    return manager.generate_jwt(SimpleAuthManagerUser(username=f"{role}-ann", role=role), **more)


def prepared(house: House) -> int:
    """Return a transaction that waits for a decision."""
    with txsaga.connect(house.home_url, roles=False, answering=False, env={}) as broker:
        broker.create_topic("orders", "transaction")
        producer = TransactionMQProducer(broker, "shop", checker=lambda question: COMMIT)
        return producer.prepare_now("orders", b"a").txid


def test_a_role_of_airflow_gets_the_routes_of_its_rank_and_no_other(console: FastAPI, log_in: Log) -> None:
    seen = 0
    for role, rank in RANKS.items():
        client = log_in(role)
        assert f"{role}-ann · {rank.name.lower()}" in client.get("/topics").text
        for method, path in routes(console):
            if path == "/api/v1/events":
                continue
            answer = client.request(method, path, json={"id": "1", "reason": ""} if method == "POST" else None)
            seen += 1
            refused = rank < needed(path) or path.startswith("/api/v1/messages")
            assert (answer.status_code == 403) is refused, (role, method, path, answer.text)
    assert seen > 300


def test_nobody_gets_in_without_a_token_of_this_airflow(
    console: FastAPI, manager: SimpleAuthManager, log_in: Log
) -> None:
    from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN

    over = token_of(manager, "admin")
    manager.revoke_token(over)
    forged = f"{token_of(manager, 'viewer').rsplit('.', 1)[0]}.{over.rsplit('.', 1)[1]}"
    for token in ("", "a.b.c", token_of(manager, "admin", expiration_time_in_seconds=-60), over, forged):
        assert log_in(token=token).get("/api/v1/status").status_code == 401, token
    stranger = log_in(token="")
    stranger.cookies.delete(COOKIE_NAME_JWT_TOKEN)
    for method, path in routes(console):
        assert stranger.request(method, path, json={} if method == "POST" else None).status_code == 401, path


def test_a_change_wants_the_token_of_the_page_and_of_this_person(
    house: House, manager: SimpleAuthManager, console: FastAPI, log_in: Log
) -> None:
    txid, client, other = prepared(house), log_in("admin"), log_in("user")
    for given in ("", "wrong", other.headers[TOKEN]):
        for method, path in routes(console):
            if method == "POST":
                said = {"id": str(txid), "reason": "forged"}
                assert client.post(path, json=said, headers={TOKEN: given}).status_code == 403, path
    assert client.get(f"/api/v1/transactions/{txid}").json()["decision"] is None
    done = client.post("/api/v1/acts/commit", json={"id": str(txid), "reason": "it was paid"})
    assert "is decided by hand: COMMIT" in done.json()["told"]
    (row,) = [each for each in client.get("/api/v1/audit").json()["items"] if each["what"] == "COMMIT BY HAND"]
    assert (row["who"], row["why"]) == ("admin-ann@console", "it was paid")


def test_a_program_with_a_token_of_the_api_needs_no_page(house: House, manager: SimpleAuthManager, log_in: Log) -> None:
    txid, program = prepared(house), log_in(token="")
    said = {"id": str(txid), "reason": "by a program"}
    for role, status in (("viewer", 403), ("user", 200)):
        key = {"authorization": f"Bearer {token_of(manager, role)}"}
        assert program.post("/api/v1/acts/commit", json=said, headers=key).status_code == status


def test_a_run_leads_to_its_transactions(log_in: Log) -> None:
    answer = log_in("viewer").get("/run", params={"dag": "transfer", "run": "manual/1 &x"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/txsaga/?run=airflow")
    assert answer.headers["location"].endswith("transfer%2Fmanual%2F1+%26x&only=1")
