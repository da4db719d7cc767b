"""
How a block is left on the real store: the table in `txsaga.messages.transaction`, row by row.

For blocks with and without a key; and what could not be stored, and what the user raised.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
from sqlalchemy import Engine, text

from tests.scene.gate import gate
from tests.scene.probe import Probe
from tests.scene.rules import (
    OpenBroker,
    check_back,
    entries_in,
    left_after_local,
    read,
    write_entry,
)
from txsaga.broker import Broker
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import (
    DecidedOtherwise,
    OutcomeUnknown,
    StoreUnavailable,
    TransactionError,
)
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction
from txsaga.store import connection

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R4")]

KEY = "order-1"
BOTH = pytest.mark.parametrize("key", [None, KEY])


class Refused(Exception):
    """What a body raises that does not like what it sees."""


Body = Callable[[Transaction], None]


def left(seller: Producer, key: str | None, body: Body) -> tuple[Transaction, type[BaseException] | None]:
    """Run a block; return it and what came out of it."""
    tx = seller.transaction(key=key)
    try:
        with tx:
            tx.send("orders", b"a")
            body(tx)
    except (Refused, TransactionError) as error:
        return tx, type(error)
    return tx, None


def local(tx: Transaction, *, refuse: bool = False) -> None:
    with tx.local("books") as session:
        write_entry(session)
        if refuse:
            raise Refused


@BOTH
def test_no_exception_without_local_work_commits(broker: Broker, seller: Producer, key: str | None) -> None:
    tx, error = left(seller, key, lambda tx: None)
    assert (tx.decision, error, read(broker)) == (Decision.COMMIT, None, [b"a"])


@BOTH
def test_no_exception_after_local_work_commits(
    broker: Broker, seller: Producer, books: Engine, key: str | None
) -> None:
    tx, error = left(seller, key, local)
    assert (tx.decision, error, read(broker), entries_in(books)) == (Decision.COMMIT, None, [b"a"], 1)


@BOTH
def test_a_swallowed_failure_of_local_work_rolls_back_and_says_so(
    broker: Broker, seller: Producer, books: Engine, key: str | None
) -> None:
    def body(tx: Transaction) -> None:
        with suppress(Refused):
            local(tx, refuse=True)

    tx, error = left(seller, key, body)
    assert (tx.decision, error) == (Decision.ROLLBACK, TransactionError)
    assert (read(broker), entries_in(books)) == ([], 0)


@BOTH
def test_an_exception_before_the_end_rolls_back(
    broker: Broker, seller: Producer, probe: Probe, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("txsaga.messages.message_buffer.FLUSH", 0)

    def body(tx: Transaction) -> None:
        raise Refused

    tx, error = left(seller, key, body)
    assert (tx.decision, error) == (Decision.ROLLBACK, Refused)
    assert (read(broker), probe.value("SELECT count(*) FROM half")) == ([], 1 if key else 0)


@BOTH
def test_an_exception_in_local_work_rolls_back_behind_a_barrier(
    broker: Broker, seller: Producer, books: Engine, key: str | None
) -> None:
    tx, error = left(seller, key, lambda tx: local(tx, refuse=True))
    assert (tx.decision, error, read(broker), entries_in(books)) == (Decision.ROLLBACK, Refused, [], 0)
    _, evidence = broker.kernel.resource("books")
    assert tx.id is not None
    with pytest.raises(DecidedOtherwise), evidence.work(tx.id) as session:
        write_entry(session)


@BOTH
def test_an_exception_behind_committed_local_work_commits_and_passes_on(
    broker: Broker, seller: Producer, books: Engine, key: str | None
) -> None:
    def body(tx: Transaction) -> None:
        local(tx)
        raise Refused

    tx, error = left(seller, key, body)
    assert (tx.decision, error, read(broker), entries_in(books)) == (Decision.COMMIT, Refused, [b"a"], 1)


@BOTH
@pytest.mark.parametrize("answer", [LocalState.COMMIT, LocalState.ROLLBACK])
def test_an_exception_after_prepare_leaves_it_to_the_checker(
    broker: Broker, key: str | None, answer: LocalState
) -> None:
    def body(tx: Transaction) -> None:
        tx.prepare()
        raise Refused

    tx, error = left(broker.producer("mail", checker=lambda _: answer), key, body)
    assert (tx.decision, error, read(broker)) == (None, Refused, [])
    assert check_back(broker) == 1
    assert read(broker) == ([b"a"] if answer is LocalState.COMMIT else [])


@BOTH
def test_a_death_after_local_work_ends_like_the_exception(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, key: str | None
) -> None:
    left_after_local(seller, key=key)
    assert check_back(open_broker(books=books)) == 1
    assert (read(broker), entries_in(books)) == ([b"a"], 1)


@BOTH
def test_a_death_in_local_work_ends_like_the_exception(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, key: str | None
) -> None:
    tx = seller.transaction(key=key).__enter__()
    tx.send("orders", b"a")
    with suppress(Refused):
        local(tx, refuse=True)
    assert check_back(open_broker(books=books)) == 1
    assert (read(broker), entries_in(books)) == ([], 0)


# What could not be stored


@pytest.fixture
def hasty(open_broker: OpenBroker, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Producer:
    """Give a producer that gives up on a lock soon."""
    monkeypatch.setitem(connection.SESSION, "lock_timeout", "300ms")
    return open_broker().producer("shop", checker=lambda _: None)


@pytest.mark.parametrize("where", ["send", "end"])
def test_a_block_whose_messages_could_not_be_stored_does_not_commit_the_rest(
    hasty: Producer, broker: Broker, probe: Probe, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    if where == "send":
        monkeypatch.setattr("txsaga.messages.message_buffer.FLUSH", 0)
    tx = hasty.transaction(key=KEY)
    with pytest.raises(TransactionError), tx:
        with gate(probe, "INSERT", "half"), pytest.raises(StoreUnavailable):
            tx.send("orders", b"lost")
            tx.prepare()
        with pytest.raises(TransactionError, match="leave the block"):
            tx.send("orders", b"rest")
    assert tx.decision is Decision.ROLLBACK
    assert read(broker) == []


def test_a_block_without_key_whose_messages_could_not_be_stored_says_so(
    hasty: Producer, broker: Broker, probe: Probe
) -> None:
    with pytest.raises(TransactionError, match="could not all be stored"), hasty.transaction() as tx:
        tx.send("orders", b"lost")
        with gate(probe, "INSERT", "half"), suppress(StoreUnavailable):
            tx.prepare()
    assert read(broker) == []


# What the user raised


@BOTH
@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_an_exception_behind_a_commit_of_the_users_own_passes_on(
    broker: Broker, seller: Producer, books: Engine, key: str | None, ends: str
) -> None:
    def body(tx: Transaction) -> None:
        with tx.local("books") as session:
            write_entry(session)
            session.exec_driver_sql(ends)
            raise Refused

    tx, error = left(seller, key, body)
    committed = ends == "commit"
    assert (tx.decision, error) == (Decision.COMMIT if committed else Decision.ROLLBACK, Refused)
    assert (read(broker), entries_in(books)) == (([b"a"], 1) if committed else ([], 0))


@BOTH
def test_an_unknown_outcome_of_somebody_else_passes_on(
    broker: Broker, seller: Producer, books: Engine, key: str | None
) -> None:
    with pytest.raises(OutcomeUnknown, match="another store"), seller.transaction(key=key) as tx:
        tx.send("orders", b"a")
        with tx.local("books") as session:
            write_entry(session)
            session.exec_driver_sql("commit")
            raise OutcomeUnknown("another store did not answer")
    assert (tx.decision, read(broker), entries_in(books)) == (Decision.COMMIT, [b"a"], 1)


@pytest.mark.req("RMQ-94")
def test_a_row_that_somebody_holds_stops_no_round(hasty: Producer, open_broker: OpenBroker, probe: Probe) -> None:
    trusting = open_broker().producer("mail", checker=lambda _: LocalState.COMMIT)
    for key in ("held", "free"):
        tx = trusting.transaction(key=key).__enter__()
        tx.send("orders", key.encode())
        tx.prepare()
    judge = open_broker()
    judge.producer("mail", checker=lambda _: LocalState.COMMIT)
    with probe.session() as somebody:
        somebody.execute(text("SELECT FROM tx WHERE key = 'held' FOR UPDATE"))
        assert check_back(judge) == 1
    assert probe.rows("SELECT key, checks FROM tx JOIN doubt USING (txid)") == [("held", 0)]
    assert check_back(judge) == 1
    assert sorted(read(judge)) == [b"free", b"held"]
