"""What works through PgBouncer: a store in session mode, databases that take part in transaction mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from sqlalchemy import Engine, create_engine, make_url, text

import txsaga
from tests.services.pooler import pooled
from tests.store.logins import logins
from txsaga.broker import Broker
from txsaga.store.connection import SESSION
from txsaga.store.right import Right
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

ADD = "update account set cents = cents + 1 where id = :id"


def test_a_store_works_in_session_mode_if_its_login_has_the_settings(home_url: str) -> None:
    open_store(home_url).close()
    with logins(home_url) as made:
        login = made.new(*Right)
        for name, value in SESSION.items():
            made.run(f"ALTER ROLE {login} SET {name} = '{value}'")
        with (
            pooled(made.url_of(login), "session", passing="options") as url,
            txsaga.connect(url, namespace=made.namespace, env={}) as broker,
        ):
            broker.create_topic("orders", "transaction")
            producer = broker.producer("shop")

            def send(number: int) -> None:
                with producer.transaction(key=f"order-{number}") as tx:
                    tx.send("orders", b"%d" % number)

            with ThreadPoolExecutor(4) as threads:
                list(threads.map(send, range(40)))
            read = {int(message.body) for message in broker.stream("mail", ["orders"]).messages(wait=2)}
            assert read == set(range(40))


@pytest.fixture
def bank(home_url: str, foreign_databases: Callable[[], str]) -> Iterator[tuple[Broker, dict[str, Engine]]]:
    """Give a broker with two databases by poolers in transaction mode; their drivers prepare no statements."""
    open_store(home_url).close()
    with ExitStack() as stack:
        engines = dict[str, Engine]()
        for name in ("current", "mortgage"):
            url = stack.enter_context(pooled(foreign_databases(), "transaction"))
            address = make_url(url).set(drivername="postgresql+psycopg")
            engines[name] = create_engine(address, connect_args={"prepare_threshold": None})
            stack.callback(engines[name].dispose)
            with engines[name].begin() as connection:
                connection.execute(text("create table account (id int primary key, cents int)"))
                connection.execute(text("insert into account values (1, 0), (2, 0)"))
        broker = stack.enter_context(txsaga.connect(home_url, resources=engines, env={}))
        broker.create_topic("moved", "transaction")
        yield broker, engines


def test_databases_take_part_in_transaction_mode(bank: tuple[Broker, dict[str, Engine]]) -> None:
    broker, engines = bank
    producer = broker.producer("bank")

    def move(number: int) -> None:
        with producer.coordinated("current", "mortgage") as tx:
            for name in engines:
                with tx.on(name) as connection:
                    connection.execute(text(ADD), {"id": 1})
        with producer.coordinated("current", "mortgage") as tx:
            for name in engines:
                tx.journal(name).execute(ADD, {"id": 1}, rows=1)
        with producer.transaction() as tx:
            tx.send("moved", b"%d" % number)
            with tx.local("current") as connection:
                connection.execute(text(ADD), {"id": 2})
        with producer.begin_flow("current", key=f"flow-{number}") as flow:
            with flow.step("debit", on="current", hold="prepared") as connection:
                connection.execute(text(ADD), {"id": 2})
            flow.end()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(move, range(9)))
    with engines["current"].connect() as connection:
        assert connection.execute(text("select cents from account order by id")).scalars().all() == [18, 18]
        assert connection.execute(text("select count(*) from pg_prepared_xacts")).scalar_one() == 0
