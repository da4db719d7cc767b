"""A block is used once, between its entry and its end, and what the user raises comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from sqlalchemy import Engine

from tests.scene.shop import ORDERS, Shop
from txsaga import Decision
from txsaga.core.records import Row
from txsaga.errors import InvalidMessage, StoreUnavailable, TransactionClosed, TransactionError
from txsaga.messages.stored_block import StoredBlock
from txsaga.messages.transaction import Transaction

BOTH = pytest.mark.parametrize("key", [None, "order-1"])


class Mistake(Exception):
    """What the user's code raises."""


STEPS: dict[str, Callable[[Transaction], object]] = {
    "send": lambda tx: tx.send(ORDERS, b"a chair"),
    "send_many": lambda tx: tx.send_many(ORDERS, [b"a chair"]),
    "later": lambda tx: tx.later(ORDERS),
    "prepare": lambda tx: tx.prepare(),
    "local": lambda tx: tx.local("books").__enter__(),
    "join_life": lambda tx: tx.join_life(),
}


@BOTH
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_nothing_works_before_the_block_is_entered(
    moody_shop: Shop, key: str | None, step: Callable[[Transaction], object]
) -> None:
    tx = moody_shop.producer().transaction(key=key)
    with pytest.raises(TransactionError, match="not entered"):
        step(tx)
    with pytest.raises(TransactionError, match="not entered"):
        tx.__exit__(None, None, None)
    assert list(moody_shop.listed()) == []


@BOTH
@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_nothing_works_after_the_block(
    moody_shop: Shop, key: str | None, sent: bool, step: Callable[[Transaction], object]
) -> None:
    with moody_shop.producer().transaction(key=key) as tx:
        if sent:
            tx.send(ORDERS, b"in time")
    with pytest.raises(TransactionClosed):
        step(tx)
    assert moody_shop.bodies() == (["in time"] if sent else [])


@BOTH
@pytest.mark.parametrize("raises", [True, False])
def test_a_block_is_not_used_twice(moody_shop: Shop, key: str | None, raises: bool) -> None:
    tx = moody_shop.producer().transaction(key=key)
    with pytest.raises(Mistake) if raises else tx:
        if raises:
            with tx:
                tx.send(ORDERS, b"first try")
                raise Mistake
    with pytest.raises(TransactionClosed, match="used once"), tx:
        tx.send(ORDERS, b"second try")
    assert moody_shop.bodies() == []


@BOTH
def test_a_block_that_could_not_be_left_takes_nothing_more(
    moody_shop: Shop, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Mistake), moody_shop.producer().transaction(key=key) as tx:
        tx.join_life()
        monkeypatch.setattr(moody_shop.broker.kernel.decider, "decide", _away)
        raise Mistake
    assert tx.decision is None
    with pytest.raises(TransactionError, match="leave the block"):
        tx.send(ORDERS, b"too late")
    monkeypatch.undo()
    tx.__exit__(Mistake, Mistake(), None)
    assert tx.decision is Decision.ROLLBACK


def _away(*_: object, **__: object) -> None:
    raise StoreUnavailable("the home database did not answer")


@BOTH
def test_a_block_that_raised_is_rolled_back_and_says_so(moody_shop: Shop, key: str | None) -> None:
    heard: list[Decision] = []
    with pytest.raises(Mistake), moody_shop.producer().transaction(key=key) as tx:
        tx.when_decided(heard.append)
        tx.send(ORDERS, b"a chair")
        raise Mistake
    assert (tx.decision, heard) == (Decision.ROLLBACK, [Decision.ROLLBACK])
    assert moody_shop.bodies() == []


@BOTH
def test_a_hook_that_raises_does_not_make_a_committed_block_look_failed(moody_shop: Shop, key: str | None) -> None:
    def fails(*_: object) -> None:
        raise Mistake

    producer = moody_shop.producer()
    moody_shop.broker.kernel.when_decided(fails)
    with producer.transaction(key=key) as tx:
        tx.when_decided(fails)
        tx.send(ORDERS, b"a chair")
    assert (tx.decision, moody_shop.bodies()) == (Decision.COMMIT, ["a chair"])


def test_a_block_that_sent_nothing_decides_nothing(moody_shop: Shop) -> None:
    with moody_shop.producer().transaction() as tx:
        pass
    assert (tx.decision, tx.txid, list(moody_shop.listed())) == (None, None, [])


def test_what_the_user_raised_is_not_hidden_by_what_the_store_says(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Mistake), moody_shop.producer().transaction(key="order-1") as tx:
        tx.send(ORDERS, b"a chair")
        monkeypatch.setattr(moody_shop.broker.kernel.decider, "decide", _away)
        raise Mistake
    assert any("did not answer" in record.message for record in caplog.records)
    assert moody_shop.pending() == [tx.txid]


@pytest.mark.parametrize("key", [None, "order-1"])
def test_a_block_that_grew_too_big_is_rolled_back_even_if_that_error_is_dropped(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    monkeypatch.setattr("txsaga.messages.message_buffer.MOST", 1_000)
    with pytest.raises(TransactionError, match="did not commit"), moody_shop.producer().transaction(key=key) as tx:
        tx.send(ORDERS, b"small")
        with pytest.raises(InvalidMessage, match="in a block pass key="):
            tx.send(ORDERS, b"x" * 2_000)
        with suppress(TransactionError):
            tx.send(ORDERS, b"small, too")
    assert (moody_shop.bodies(), moody_shop.pending()) == ([], [])


def test_a_block_that_grew_too_big_does_no_local_work(moody_shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txsaga.messages.message_buffer.MOST", 1_000)
    with pytest.raises(TransactionError), moody_shop.producer().transaction() as tx:
        with suppress(InvalidMessage):
            tx.send(ORDERS, b"x" * 2_000)
        tx.prepare()
    assert moody_shop.pending() == []


def test_a_block_that_was_interrupted_as_it_stored_messages_commits_nothing_of_them(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def struck(*_: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("txsaga.messages.message_buffer.FLUSH", 1_000)
    with pytest.raises(TransactionError), moody_shop.producer().transaction(key="order-1") as tx:
        tx.send(ORDERS, b"first")
        monkeypatch.setattr(StoredBlock, "add", struck)
        with pytest.raises(KeyboardInterrupt):
            tx.send(ORDERS, b"x" * 2_000)
        tx.send(ORDERS, b"last")
    assert (moody_shop.bodies(), moody_shop.pending()) == ([], [])


@pytest.mark.parametrize("key", [None, "order-1"])
def test_a_block_that_is_interrupted_as_it_closes_is_rolled_back_at_once(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch, key: str | None
) -> None:
    close = StoredBlock.close

    def struck(block: StoredBlock, rows: Sequence[Row], evidence: int | None) -> None:
        close(block, rows, evidence)
        raise KeyboardInterrupt

    monkeypatch.setattr(StoredBlock, "close", struck)
    with pytest.raises(KeyboardInterrupt), moody_shop.producer().transaction(key=key) as tx:
        tx.send(ORDERS, b"a chair")
    monkeypatch.undo()
    assert (moody_shop.bodies(), moody_shop.pending()) == ([], [] if key else [tx.txid])


def test_a_block_whose_end_could_not_be_written_is_rolled_back_at_once(
    moody_shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoredBlock, "close", _away)
    heard: list[Decision] = []
    with pytest.raises(StoreUnavailable), moody_shop.producer().transaction(key="order-1") as tx:
        tx.when_decided(heard.append)
        tx.send(ORDERS, b"a chair")
    assert (tx.decision, heard) == (Decision.ROLLBACK, [Decision.ROLLBACK])
    assert moody_shop.pending() == []


def test_a_commit_that_was_refused_and_dropped_rolls_back(shop: Shop, engine_of: Callable[[str], Engine]) -> None:
    shop.broker.register("books", engine_of("sqlite"))
    with pytest.raises(TransactionError, match="rolled back, as a commit"), shop.producer().transaction() as tx:
        tx.send(ORDERS, b"a chair")
        with tx.local("books") as connection, suppress(TransactionError):
            connection.commit()
    assert (tx.decision, shop.bodies()) == (Decision.ROLLBACK, [])


@pytest.mark.parametrize("raw", [True, False])
def test_a_block_whose_local_work_commits_by_itself_says_what_stands(
    shop: Shop, engine_of: Callable[[str], Engine], raw: bool
) -> None:
    engine = engine_of("sqlite")
    with engine.begin() as connection:
        connection.exec_driver_sql("create table entry (id int)")
    shop.broker.register("books", engine)
    with pytest.raises(Mistake) as caught, shop.producer().transaction() as tx:
        tx.send(ORDERS, b"a chair")
        with tx.local("books") as connection:
            connection.exec_driver_sql("insert into entry values (7)")
            if raw:
                connection.exec_driver_sql("COMMIT")
            raise Mistake
    said = f"transaction {tx.txid} is COMMITTED all the same"
    assert [note.startswith(said) for note in getattr(caught.value, "__notes__", ())] == ([True] if raw else [])
    assert (tx.decision, shop.bodies()) == ((Decision.COMMIT, ["a chair"]) if raw else (Decision.ROLLBACK, []))
