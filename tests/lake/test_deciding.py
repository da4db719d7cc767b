"""Whoever decides publishes the tables too: check-back, a person, another owner; who can't leaves it undecided."""

import sys
from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.lake.books import COLUMNS, LEDGER, POSTING, Books, rows
from tests.scene.elsewhere import Elsewhere
from txsaga.checkback.by_hand import ByHand
from txsaga.checkback.profile import CheckProfile
from txsaga.core.decision import Decision, LocalState
from txsaga.errors import InDoubt, TableMoved
from txsaga.testing.checking import check_once

pytestmark = [pytest.mark.postgres, pytest.mark.core]

AT_ONCE = CheckProfile(min_age=timedelta(0), interval=timedelta(0))


class Died(Exception):
    """What stands for the end of a process."""


def leave_closed(books: Books) -> int:
    """Write to two tables and send, close, and never decide."""
    books.create(LEDGER, POSTING)
    with pytest.raises(Died), books.producer.transaction(key="job") as tx:
        tx.table(LEDGER).append(rows(1))
        tx.table(POSTING).overwrite(rows(2))
        tx.send("booked", b"1")
        tx.prepare()
        raise Died
    assert tx.txid is not None
    return tx.txid


def messages(books: Books) -> int:
    with books.broker.cut() as cut:
        return sum(cut.heads["booked"])


@pytest.mark.rule("R2")
@pytest.mark.req("RMQ-10", "RMQ-69")
@pytest.mark.parametrize("answer", [LocalState.COMMIT, LocalState.ROLLBACK])
def test_check_back_publishes_what_a_dead_owner_closed(
    books: Books, open_books: Callable[..., Books], answer: LocalState
) -> None:
    leave_closed(books)
    other = open_books()
    other.answer = books.answer = answer
    check_once(other.broker, AT_ONCE)
    done = answer is LocalState.COMMIT
    assert (other.ids(), other.ids(POSTING), messages(other)) == (([1], [2], 1) if done else ([], [], 0))


@pytest.mark.rule("R2")
@pytest.mark.parametrize("decision", list(Decision))
def test_a_person_publishes_it(books: Books, open_books: Callable[..., Books], decision: Decision) -> None:
    txid, other = leave_closed(books), open_books()
    ByHand(other.broker.kernel).decide(txid, decision, who="anna", why="I know")
    done = decision is Decision.COMMIT
    assert (other.ids(), other.ids(POSTING), messages(other)) == (([1], [2], 1) if done else ([], [], 0))


@pytest.mark.rule("R2")
def test_a_table_that_was_changed_meanwhile_rolls_all_of_it_back(
    books: Books, open_books: Callable[..., Books]
) -> None:
    leave_closed(books)
    books.append(9, table=POSTING)
    other = open_books()
    other.answer = books.answer = LocalState.COMMIT
    check_once(other.broker, AT_ONCE)
    assert (other.ids(), other.ids(POSTING), messages(other)) == ([], [9], 0)


@pytest.mark.rule("R2")
def test_a_process_without_pyiceberg_leaves_it_undecided(
    books: Books, open_books: Callable[..., Books], monkeypatch: pytest.MonkeyPatch
) -> None:
    txid, other = leave_closed(books), open_books()
    monkeypatch.setitem(sys.modules, "txsaga.lake.lake", None)
    with pytest.raises(InDoubt, match=r"pip install 'txsaga\[lake\]'"):
        ByHand(other.broker.kernel).decide(txid, Decision.COMMIT, who="anna", why="I know")
    ByHand(other.broker.kernel).decide(txid, Decision.ROLLBACK, who="anna", why="I know")


@pytest.mark.rule("R4")
def test_a_dead_attempt_publishes_nothing_whoever_decides(books: Books, open_books: Callable[..., Books]) -> None:
    books.create()
    dead = Elsewhere(books.producer.transaction(key="job")).__enter__()
    dead.table(LEDGER).append(rows(1))
    with pytest.raises(Died), books.producer.transaction(key="job") as tx:
        tx.table(LEDGER).append(rows(2))
        tx.prepare()
        raise Died
    assert tx.txid is not None
    ByHand(open_books().broker.kernel).decide(tx.txid, Decision.COMMIT, who="anna", why="I know")
    assert books.ids() == [2]


@pytest.mark.rule("R3")
@pytest.mark.req("RMQ-92")
def test_a_zombie_can_neither_write_nor_publish(books: Books) -> None:
    books.create()
    zombie = Elsewhere(books.producer.transaction(key="job")).__enter__()
    zombie.table(LEDGER).append(rows(1))
    with books.producer.transaction(key="job") as tx:
        tx.table(LEDGER).append(rows(2))
    with pytest.raises(Exception, match=r"COMMIT|taken over"):
        zombie.table(LEDGER).append(rows(3))
    with pytest.raises(Exception, match=r"COMMIT|taken over"):
        zombie.__exit__(None, None, None)
    assert books.ids() == [2]


def test_a_conflict_leaves_nothing_undecided(books: Books) -> None:
    books.create()
    with pytest.raises(TableMoved), books.producer.transaction(key="job") as tx:
        tx.table(LEDGER).overwrite(rows(1))
        books.append(2)
    assert tx.decision is Decision.ROLLBACK
    with books.producer.transaction(key="job") as tx:
        tx.table(LEDGER).overwrite(rows(1))
    assert books.ids() == [1]


def test_a_broken_write_rolls_back_what_was_written_before(books: Books) -> None:
    books.create()
    with pytest.raises(ZeroDivisionError), books.producer.transaction() as tx:
        tx.table(POSTING).create(COLUMNS).append(rows(1))
        tx.table(LEDGER).append(rows(2))
        raise ZeroDivisionError
    assert books.ids() == []
    assert not books.is_there(POSTING)
