"""R1: others may commit only what its owner has closed; local work closes, once and last.

Without it: `send(a)`, local work commits, kill before `send(b)`; the evidence says "committed" and check-back
commits half a transaction.
"""

import pytest
from sqlalchemy import Engine

from tests.contracts.samples import PATIENCE, start
from tests.scene.gate import gate
from tests.scene.probe import Probe
from tests.scene.rules import OpenBroker, check_back, entries_in, left_after_local, read, write_entry
from txsaga.broker import Broker
from txsaga.core.decision import Decision, LocalState
from txsaga.core.facts import Deciding, Fact
from txsaga.core.records import Doubt
from txsaga.errors import IllegalTransition, TransactionClosed
from txsaga.messages.decide import DecidedBy
from txsaga.messages.producer import Producer
from txsaga.messages.transaction import Transaction

pytestmark = [pytest.mark.rule("R1"), pytest.mark.postgres, pytest.mark.core]


@pytest.fixture
def open_transaction(broker: Broker, seller: Producer, books: Engine, monkeypatch: pytest.MonkeyPatch) -> Transaction:
    """Give a transaction killed between its two sends, its evidence committed all the same."""
    monkeypatch.setattr("txsaga.messages.message_buffer.FLUSH", 0)
    tx = seller.transaction(key="order-1").__enter__()
    tx.send("orders", b"a")
    assert tx.id is not None
    _, evidence = broker.kernel.resource("books")
    with evidence.work(tx.id) as connection:
        write_entry(connection)
    return tx


def test_evidence_never_commits_what_its_owner_left_open(broker: Broker, open_transaction: Transaction) -> None:
    life = open_transaction.join_life()
    resource, _ = broker.kernel.resource("books")
    standing = broker.kernel.settler.check(Doubt.of(life, resource.id)).standing
    assert standing is not None
    assert standing.decision is Decision.ROLLBACK
    assert read(broker) == []


def test_check_back_leaves_an_open_transaction_alone(broker: Broker, open_transaction: Transaction) -> None:
    assert check_back(broker) == 0
    assert open_transaction.decision is None
    assert read(broker) == []


def test_nobody_else_commits_an_open_transaction(broker: Broker, open_transaction: Transaction) -> None:
    assert open_transaction.txid is not None
    with pytest.raises(IllegalTransition, match="still open"):
        broker.kernel.decider.decide(open_transaction.txid, Decision.COMMIT, DecidedBy(who="operator", why="test"))
    assert read(broker) == []


def test_an_owner_who_closes_while_others_judge_it_open_is_not_rolled_back(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine
) -> None:
    tx = seller.transaction(key="order-1").__enter__()
    tx.send("orders", b"a")

    def close_it(fact: Fact) -> None:
        if isinstance(fact, Deciding) and entries_in(books) == 0:
            with tx.local("books") as connection:
                write_entry(connection)

    judge = open_broker(close_it, books=books).kernel.settler
    doubt = Doubt.of(tx.join_life())
    overtaken = judge.check(doubt)
    assert overtaken.standing is None
    assert "check it again" in overtaken.why
    standing = judge.check(doubt).standing
    assert standing is not None
    assert standing.decision is Decision.COMMIT
    tx.__exit__(None, None, None)
    assert (entries_in(books), read(broker)) == (1, [b"a"])


@pytest.mark.parametrize("key", [None, "order-1"])
def test_local_work_comes_once_and_last(seller: Producer, books: Engine, key: str | None) -> None:
    with seller.transaction(key=key) as tx:
        tx.send("orders", b"a")
        with tx.local("books") as connection:
            write_entry(connection)
        with pytest.raises(TransactionClosed):
            tx.send("orders", b"b")
        with pytest.raises(TransactionClosed):
            tx.later("orders")
        with pytest.raises(TransactionClosed), tx.local("books") as connection:
            write_entry(connection, 2)
    assert entries_in(books) == 1


def test_the_last_halves_and_the_end_are_one_commit_before_local_work(
    broker: Broker, seller: Producer, probe: Probe, books: Engine
) -> None:
    def run() -> Transaction:
        with seller.transaction(key="order-1") as tx:
            tx.send("orders", b"a")
            with tx.local("books") as connection:
                write_entry(connection)
        return tx

    with gate(probe, "UPDATE", "tx", when="NEW.state = 'sealed'") as end:
        done = start(run)
        end.wait()
        assert probe.value("SELECT count(*) FROM half") == 0
        assert probe.value("SELECT state FROM tx") == "active"
        with broker.kernel.resource("books")[1].work("0" * 32 + "-1-1"):
            assert entries_in(books) == 0
        end.open()
    assert done.result(PATIENCE).decision is Decision.COMMIT
    assert read(broker) == [b"a"]


def test_the_halves_and_the_end_of_a_transaction_without_key_are_one_statement(seller: Producer, probe: Probe) -> None:
    tx = seller.transaction().__enter__()
    tx.send("orders", b"a")
    tx.send("orders", b"b")
    assert probe.value("SELECT count(*) FROM half") == 0
    with tx.local("books"):
        assert probe.value("SELECT sum(n) FROM half") == 2


@pytest.mark.parametrize("key", [None, "order-1"])
def test_others_commit_what_was_closed_before_its_owner_died(
    open_broker: OpenBroker, broker: Broker, seller: Producer, books: Engine, key: str | None
) -> None:
    left_after_local(seller, key=key)
    assert check_back(open_broker(books=books)) == 1
    assert read(broker) == [b"a"]


def test_prepare_closes_for_work_that_is_no_sql_and_the_checker_answers(broker: Broker) -> None:
    asked: list[str | None] = []

    def checker(question: object) -> LocalState:
        asked.append(getattr(question, "key", None))
        return LocalState.COMMIT

    mail = broker.producer("mail", checker=checker)
    opened, closed = (mail.transaction(key=key).__enter__() for key in ("opened", "closed"))
    opened.send("orders", b"opened")
    closed.send("orders", b"closed")
    closed.prepare()
    assert check_back(broker) == 1
    assert asked == ["closed"]
    assert read(broker) == [b"closed"]
