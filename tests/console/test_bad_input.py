"""What a page says when its input, its store or its session is wrong: one clear line, and nothing half done."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from uuid import uuid4

import httpx
import pytest

import txsaga
from tests.console.conftest import Enter
from tests.console.listening import listening
from tests.console.test_access import OPEN, routes
from tests.scene.shop import Shop
from tests.services.free_port import free_port
from txsaga.console.access import COOKIE, TOKEN, OwnGuard
from txsaga.console.app import create_app
from txsaga.console.home import Home
from txsaga.console.people import Person, Rank

HTML = {"accept": "text/html"}
PASSWORD = "a-password-of-the-database"


def line(page: str) -> str:
    """Return the one line of a page about trouble."""
    (found,) = re.findall('<p role="alert">(.*?)</p>', page, re.DOTALL)
    return str(found)


@pytest.mark.parametrize("changed", [{"uuid": uuid4()}, {"incarnation": 7}])
def test_the_id_of_another_store_does_nothing_to_the_transaction_of_that_number(
    shop: Shop, enter: Enter, changed: dict[str, Any]
) -> None:
    txid = shop.mq_producer().prepare_now("orders", b"a").txid
    other = replace(shop.broker.identity, **changed).transaction(txid)
    client = enter(Rank.ADMIN)
    for path in (f"/transactions/{other}", f"/transactions/{other}/messages"):
        assert "belongs to another store" in line(client.get(path).text)
    said = {"id": other, "reason": "a test", "step": 1, "branch": 1, "attempt": 1}
    for act in ("settle", "resume", "commit", "rollback", "replay", "resume-step", "skip-step", "forget"):
        answer = client.get(f"/acts/{act}", params={name: str(value) for name, value in said.items()})
        assert (answer.status_code, "belongs to another store" in line(answer.text)) == (404, True), act
        done = client.post(f"/api/v1/acts/{act}", json=said)
        assert (done.status_code, "belongs to another store" in done.json()["error"]) == (404, True), act
    assert shop.pending() == [txid]


def test_a_store_that_is_away_gets_one_line_on_every_page(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    url = f"postgresql://ann:{PASSWORD}@127.0.0.1:{free_port()}/nowhere"
    guard = OwnGuard()
    console = create_app(Home(lambda: txsaga.connect(url, roles=False, env={}), env={}), guard)
    with listening(console) as address, httpx.Client(base_url=address, headers=HTML, timeout=30) as client:
        client.cookies.set(COOKIE, guard.session(Person("ann", Rank.ADMIN)))
        page = client.get("/topics")
        client.headers[TOKEN] = page.text.split('data-token="')[1].split('"')[0]
        assert (page.status_code, "The store is unavailable" in page.text) == (503, True)
        said, seen = {"id": "1", "reason": "a test", "step": "1"}, ""
        for method, path in routes(console):
            if path in (*OPEN, "/sign-out", "/api/v1/events", "/api/v1/openapi.json") or "/messages" in path:
                continue
            path += {"members": "?group=g", "table": "?name=n"}.get(path.rpartition("/")[2], "")
            answer = client.request(
                method, f"{path}&step=1" if "-step?" in path else path, json=said if method == "POST" else None
            )
            assert answer.status_code == 503, (path, answer.text)
            told = answer.json()["error"] if path.startswith("/api/") else line(answer.text)
            assert "\n" not in told.strip() and "127.0.0.1" in told, path
            seen += answer.text
    assert PASSWORD not in seen + caplog.text
