"""The steps of a flow stage rows for tables of the home database; its end puts all of them in their place, or none."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from tests.lake.books import Books
from tests.lake.conftest import books, open_books, warehouse
from tests.lake.home_rows.home_shop import Shop, sales, shop, told
from txsaga.errors import ConfigError, EffectConflict, TransactionError
from txsaga.flows.flow import Flow

__all__ = ["books", "open_books", "shop", "warehouse"]

pytestmark = [pytest.mark.postgres, pytest.mark.core]


def begun(books: Books, *, amend: str | None = None) -> int:
    return books.producer.begin_flow(key="night", amend=amend).txid


def write(books: Books, txid: int, step: str, *works: Callable[[Flow], object]) -> None:
    """Do a step in a process of its own, as far as a broker is one."""
    with books.broker.flow(txid) as flow, flow.step(step):
        for work in works:
            work(flow)


def end(books: Books, txid: int) -> None:
    with books.broker.flow(txid) as flow:
        flow.end()


@pytest.mark.req("IBM-38")
@pytest.mark.rule("R2")
def test_rows_of_many_steps_and_a_message_are_there_together(open_books: Callable[[], Books], shop: Shop) -> None:
    first, second = open_books(), open_books()
    place = f"{shop.name}.sale"
    txid = begun(first)
    write(first, txid, "one", lambda flow: flow.rows(place).insert(sales(1, 2)))
    write(second, txid, "two", lambda flow: flow.rows(place).insert(sales(3)), lambda flow: flow.send("booked", b"3"))
    assert shop.ids("sale") == []
    end(first, txid)
    assert (shop.ids("sale"), told(first), shop.staged()) == ([1, 2, 3], 1, [])


@pytest.mark.rule("R4")
def test_what_a_failed_attempt_staged_is_not_placed(books: Books, shop: Shop) -> None:
    place, txid = f"{shop.name}.sale", begun(books)
    with books.broker.flow(txid) as flow:
        with pytest.raises(ValueError), flow.step("one"):
            flow.rows(place).insert(sales(1))
            raise ValueError
        with flow.step("one"):
            flow.rows(place).insert(sales(2))
        flow.end()
    assert shop.ids("sale") == [2]
    assert len(books.broker.kernel.rows.collect()) == len(shop.staged()) + 1 == 1


def test_rows_that_the_table_refuses_roll_the_flow_back(books: Books, shop: Shop) -> None:
    shop.run("INSERT INTO {s}.sale VALUES (2, 1, 'theirs')")
    txid = begun(books)
    place = f"{shop.name}.sale"
    write(books, txid, "one", lambda flow: flow.rows(place).insert(sales(1, 2)), lambda flow: flow.send("booked", b""))
    with pytest.raises(EffectConflict, match="sale_pkey"):
        end(books, txid)
    assert (shop.ids("sale"), told(books)) == ([2], 0)


def test_an_amendment_replaces_rows_and_adds_none(books: Books, shop: Shop) -> None:
    place, txid = f"{shop.name}.price", begun(books)
    write(books, txid, "one", lambda flow: flow.rows(place).replace(sales(7)))
    end(books, txid)
    again = begun(books, amend="cleared")
    with pytest.raises(ConfigError, match=r"replace them with replace\(rows\)"):
        write(books, again, "one", lambda flow: flow.rows(place).insert(sales(8)))
    write(books, again, "one", lambda flow: flow.rows(place).replace(sales(9)))
    end(books, again)
    assert shop.ids("price") == [9]


def test_rows_are_written_in_steps(books: Books, shop: Shop) -> None:
    with books.broker.flow(begun(books)) as flow, pytest.raises(TransactionError, match="step"):
        flow.rows(f"{shop.name}.sale")


@pytest.mark.rule("R12")
def test_rows_are_refused_beside_a_resource_that_can_not_vote(books: Books, shop: Shop, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'till.db'}")
    with engine.begin() as connection:
        connection.exec_driver_sql("create table note (id int)")
    books.broker.register("till", engine)
    txid = books.producer.begin_flow("till", key="night").txid
    with books.broker.flow(txid) as flow:
        with flow.step("note", on="till", hold="journal") as journal:
            journal.execute("insert into note values (1)")
        with flow.step("rows"):
            flow.rows(f"{shop.name}.sale").insert(sales(1))
        with pytest.raises(ConfigError, match="a resource that can't vote"):
            flow.end()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("select count(*) from note").scalar_one() == 0
    assert shop.ids("sale") == []
    engine.dispose()
