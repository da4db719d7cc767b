"""A bank whose flows are worked on by many processes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine

import txsaga
from tests.flows.coordinated.bank import Bank
from tests.flows.flow.desks import Desks
from tests.scene.stored import Stored
from txsaga.wiring.connecting import open_store

OpenDesks = Callable[..., Desks]


@pytest.fixture
def log_of() -> list[str]:
    """Give the names of the facts in their order, of all processes."""
    return []


@pytest.fixture
def open_desks(home_url: str, engine_of: Callable[[str], Engine], log_of: list[str]) -> Iterator[OpenDesks]:
    """Give a maker of banks with one account in a database of each kind that is named."""
    open_store(home_url).close()
    with ExitStack() as closing:

        def desks(current: str = "postgresql", mortgage: str = "postgresql") -> Desks:
            engines = {"current": engine_of(current), "mortgage": engine_of(mortgage)}
            broker = closing.enter_context(
                txsaga.connect(home_url, resources=engines, roles=False, answering=False, env={})
            )
            bank = Bank(broker, engines, Stored(home_url)).open()
            return Desks(home_url, engines, bank, [lambda fact: log_of.append(fact.name)])

        yield desks


@pytest.fixture
def desks(open_desks: OpenDesks) -> Desks:
    """Give a bank with two databases on PostgreSQL."""
    return open_desks()
