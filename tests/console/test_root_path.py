"""The console behind a proxy that serves it under a prefix."""

from __future__ import annotations

import re

import httpx
from fastapi import FastAPI

from tests.console.listening import listening
from tests.console.proxied import PREFIX, proxied
from tests.scene.shop import Shop
from txsaga.console.access import COOKIE, OwnGuard
from txsaga.console.people import Credential, Rank


def test_pages_links_cookies_redirects_and_events_keep_the_prefix(
    shop: Shop, console: FastAPI, guard: OwnGuard
) -> None:
    guard.link, receipt = "let-me-in", shop.mq_producer().prepare_now("orders", b"a")
    with proxied(console) as address, httpx.Client(base_url=address, headers={"accept": "text/html"}) as client:
        entered = client.get("/enter?link=let-me-in")
        assert (entered.status_code, entered.headers["location"]) == (303, f"{PREFIX}/")
        assert f"path={PREFIX};" in entered.headers["set-cookie"].lower()
        page = client.get(f"/transactions/{receipt.txid}").text
        links = {link for link in re.findall(r'(?:href|src|action)="(/[^"]*)"', page)}
        assert links
        for link in links:
            assert link.startswith(f"{PREFIX}/"), link
            if "sign-out" not in link:
                assert client.get(link.removeprefix(PREFIX)).status_code == 200, link
        assert client.get("/static/console.js").headers["cache-control"] == "max-age=3600"
        assert client.get("/api/v1/transactions").json()["items"][0]["txid"] == receipt.txid
        with client.stream("GET", "/api/v1/events") as events:
            assert next(events.iter_text()).startswith(": hello")
        token = page.split('data-token="')[1].split('"')[0]
        said = {"id": str(receipt.txid), "reason": "a test"}
        assert client.post("/api/v1/acts/commit", json=said, headers={"x-txsaga-token": token}).status_code == 200
        out = client.post("/sign-out")
        assert f"path={PREFIX};" in f"{out.headers['set-cookie'].lower()};"
        assert COOKIE not in client.cookies
        wanted = client.get("/groups?x=1").headers["location"]
        assert wanted == f"{PREFIX}/sign-in?next=%2Fgroups%3Fx%3D1"
        guard.accounts = {"ann": Credential.made("ann", Rank.VIEWER, "a long password")}
        form = {"name": "ann", "password": "a long password", "next": "/groups"}
        assert client.post("/sign-in", data=form).headers["location"] == f"{PREFIX}/groups"
        assert client.get("/groups").status_code == 200


def test_a_console_inside_another_application_keeps_its_prefix(shop: Shop, console: FastAPI, guard: OwnGuard) -> None:
    guard.link, outer = "let-me-in", FastAPI()
    outer.mount(PREFIX, console)
    with listening(outer) as address, httpx.Client(base_url=address, headers={"accept": "text/html"}) as client:
        assert client.get(f"{PREFIX}/groups").headers["location"] == f"{PREFIX}/sign-in?next=%2Fgroups"
        assert client.get(f"{PREFIX}/enter?link=let-me-in").headers["location"] == f"{PREFIX}/"
        assert f'href="{PREFIX}/tables"' in client.get(f"{PREFIX}/tables").text
        assert client.get(f"{PREFIX}/static/console.css").headers["cache-control"] == "max-age=3600"
        assert client.get(f"{PREFIX}/api/v1/transactions/999999").json()["error"]
    console.state.home.close()  # no lifespan of an application inside another is run
