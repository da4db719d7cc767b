"""A console that listens, on a store, and people with each role before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

import txsaga
from tests.console.listening import listening
from tests.lake.books import Books
from tests.scene.fixtures import shop, stored  # noqa: F401  # fixtures
from tests.scene.shop import Shop
from txsaga.console.access import COOKIE, TOKEN, OwnGuard
from txsaga.console.app import create_app
from txsaga.console.home import Home
from txsaga.console.people import Person, Rank

Enter = Callable[[Rank | None], httpx.Client]


@pytest.fixture
def books(home_url: str, shop: Shop, tmp_path: Path) -> Iterator[Books]:  # noqa: F811
    """Give books in a lake beside the shop."""
    with txsaga.connect(home_url, warehouse=tmp_path, roles=False, answering=False, env={}) as broker:
        yield Books(broker)


@pytest.fixture
def guard() -> OwnGuard:
    return OwnGuard()


@pytest.fixture
def console(home_url: str, guard: OwnGuard, shop: Shop) -> FastAPI:  # noqa: F811
    """Give the application of a console."""
    home = Home(lambda: txsaga.connect(home_url, roles=False, answering=False, env={}), env={})
    return create_app(home, guard)


@pytest.fixture
def enter(console: FastAPI, guard: OwnGuard) -> Iterator[Enter]:
    """Give a way to open the console as somebody with a role, or as a stranger."""
    with ExitStack() as opened:
        address = opened.enter_context(listening(console))

        def enter(role: Rank | None) -> httpx.Client:
            client = opened.enter_context(httpx.Client(base_url=address, headers={"accept": "text/html"}, timeout=30))
            if role is not None:
                client.cookies.set(COOKIE, guard.session(Person(role.name.lower(), role)))
                page = client.get("/topics").text
                client.headers[TOKEN] = page.split('data-token="')[1].split('"')[0]
            return client

        yield enter
