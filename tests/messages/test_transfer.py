"""One fate: a debit in the user's database and the message that tells of it, in every shape there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from tests.scene.shop import ORDERS, Shop
from txsaga import COMMIT, ROLLBACK, LocalState, Message
from txsaga.messages.producer import Producer
from txsaga.rocketmq import TransactionMQProducer

pytestmark = pytest.mark.core

START, AMOUNT = 50_000, 10_000
CREDIT = Message.text(ORDERS, f"credit B {AMOUNT}", key="A")


class Overdrawn(Exception):
    """The local work fails."""


class Bank:
    """The user's database with account A in it."""

    def __init__(self, url: str) -> None:
        self.engine: Engine = create_engine(url)
        with self.engine.begin() as connection:
            connection.execute(text("CREATE TABLE account (id char(1) PRIMARY KEY, balance int)"))
            connection.execute(text("INSERT INTO account VALUES ('A', :start)"), {"start": START})

    def debit(self, connection: Connection, fails: bool) -> None:
        """Take the amount from A; failing comes after the money is taken."""
        connection.execute(text("UPDATE account SET balance = balance - :amount"), {"amount": AMOUNT})
        if fails:
            raise Overdrawn

    def balance(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(text("SELECT balance FROM account")).scalar_one())


Transfer = Callable[[TransactionMQProducer, Bank, bool], None]


def in_a_block(producer: Producer, bank: Bank, fails: bool, key: str | None = None) -> None:
    with producer.transaction(key=key) as tx:
        tx.send(CREDIT)
        with tx.local("bank") as connection:
            bank.debit(connection, fails)


def in_a_keyed_block(producer: Producer, bank: Bank, fails: bool) -> None:
    in_a_block(producer, bank, fails, key="transfer-1")


def with_local_work(producer: TransactionMQProducer, bank: Bank, fails: bool) -> None:
    def local(message: Message, arg: object) -> LocalState:
        try:
            with bank.engine.begin() as connection:
                bank.debit(connection, fails)
        except Overdrawn:
            return ROLLBACK
        return COMMIT

    producer.send_message_in_transaction(CREDIT, executor=local)


def by_hand(producer: Producer, bank: Bank, fails: bool) -> None:
    receipt = producer.prepare(CREDIT).result(10)
    try:
        with bank.engine.begin() as connection:
            bank.debit(connection, fails)
    except Overdrawn:
        producer.roll_back(receipt)
    else:
        producer.commit(receipt)


SHAPES = [in_a_block, in_a_keyed_block, with_local_work, by_hand]


@pytest.fixture(params=["postgresql", "sqlite"])
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bank]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'bank.db'}"
    else:
        url = request.getfixturevalue("foreign_databases")()
    bank = Bank(url)
    yield bank
    bank.engine.dispose()


@pytest.mark.req("RMQ-01")
@pytest.mark.parametrize("fails", [False, True], ids=["the debit succeeds", "the debit fails"])
@pytest.mark.parametrize("transfer", SHAPES)
def test_the_debit_and_the_message_share_one_fate(shop: Shop, bank: Bank, transfer: Transfer, fails: bool) -> None:
    shop.broker.register("bank", bank.engine)
    try:
        transfer(shop.mq_producer(), bank, fails)
    except Overdrawn:
        assert fails
    assert bank.balance() == (START if fails else START - AMOUNT)
    assert shop.bodies() == ([] if fails else [f"credit B {AMOUNT}"])
    assert shop.pending() == []


@pytest.mark.req("IBM-10")
def test_two_outcomes_exist_and_both_are_recorded(shop: Shop, tmp_path: Path) -> None:
    bank = Bank(f"sqlite:///{tmp_path / 'bank.db'}")
    shop.broker.register("bank", bank.engine)
    producer = shop.mq_producer()
    in_a_keyed_block(producer, bank, False)
    with pytest.raises(Overdrawn):
        in_a_block(producer, bank, True, key="transfer-2")
    with_local_work(producer, bank, False)
    with_local_work(producer, bank, True)
    outcomes = [(view.state, view.decision.name if view.decision else None) for view in shop.listed()]
    good, bad = ("committed", "COMMIT"), ("rolled_back", "ROLLBACK")
    assert outcomes == [bad, good, bad, good]
    bank.engine.dispose()
