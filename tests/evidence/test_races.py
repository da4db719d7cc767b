"""Local work and its fence meet in every order; one outcome stands, and it tells the truth."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.evidence.books import Books, OpenEngine, enter
from tests.evidence.conftest import MARIADB
from txsaga.core.records import EvidenceOutcome
from txsaga.errors import DecidedOtherwise, StoreUnavailable, TransactionError

TRANSACTIONS = 50
CALLERS = 8
FENCES_FIRST, WORK_FIRST = 0, 5
"""Of ten transactions one has a fence first and one local work; in the others they race."""


@dataclass(slots=True)
class Told:
    """What each caller was told."""

    worked: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    fenced: list[tuple[int, EvidenceOutcome]] = field(default_factory=list)


@pytest.mark.rule("R10")
def test_exactly_one_outcome_stands_for_each_and_the_rows_agree(open_engine: OpenEngine) -> None:
    books, told = Books(open_engine(pool_size=CALLERS + 1)).open(), Told()
    assert books.evidence.database
    together = threading.Barrier(CALLERS)
    worked, fenced = ([threading.Event() for _ in range(TRANSACTIONS)] for _ in range(2))

    def call(caller: int) -> None:
        for txid in range(TRANSACTIONS):
            together.wait(60)  # all eight meet at every transaction
            if (caller + txid) % CALLERS < workers_of(txid):
                assert txid % 10 != FENCES_FIRST or fenced[txid].wait(60)
                work_once(books, told, txid, entry=txid * CALLERS + caller)
                worked[txid].set()
            else:
                assert txid % 10 != WORK_FIRST or worked[txid].wait(60)
                fence_until_told(books, told, txid)
                fenced[txid].set()

    with ThreadPoolExecutor(CALLERS) as pool:
        for running in [pool.submit(call, caller) for caller in range(CALLERS)]:
            running.result()
    assert_one_truth(books, told)


def workers_of(txid: int) -> int:
    """Return how many of the callers do local work: one to all but one, the others fence."""
    return txid % (CALLERS - 1) + 1


def work_once(books: Books, told: Told, txid: int, entry: int) -> None:
    """Do local work, again when somebody else's was in the way."""
    while True:
        try:
            with books.evidence.work(books.id(txid)) as connection:
                enter(connection, entry)
            return told.worked.append(entry)
        except DecidedOtherwise as other:
            return told.refused.append((txid, other.standing))
        except StoreUnavailable:
            continue


def fence_until_told(books: Books, told: Told, txid: int) -> None:
    """Fence until something stands."""
    while True:
        try:
            outcome = books.evidence.fence(books.id(txid))
        except StoreUnavailable:
            continue
        if outcome is not None:
            return told.fenced.append((txid, outcome))


def assert_one_truth(books: Books, told: Told) -> None:
    outcomes = books.outcomes()
    assert sorted(outcomes) == list(range(TRANSACTIONS))
    for first, outcome in ((FENCES_FIRST, 2), (WORK_FIRST, 1)):
        assert {outcomes[txid] for txid in range(first, TRANSACTIONS, 10)} == {outcome}
    assert sorted(told.worked) == sorted(books.entries())
    committed = [txid for txid, outcome in outcomes.items() if outcome == 1]
    assert sorted(entry // CALLERS for entry in told.worked) == sorted(committed)
    assert len(told.worked) + len(told.refused) == sum(map(workers_of, range(TRANSACTIONS)))
    assert len(told.fenced) == sum(CALLERS - workers_of(txid) for txid in range(TRANSACTIONS))
    assert all(outcome == (outcomes[txid] == 1, {}) for txid, outcome in told.fenced)
    assert all({"COMMIT": 1, "ROLLBACK": 2}[said] == outcomes[txid] for txid, said in told.refused)


@pytest.mark.parametrize("kind", [MARIADB])
@pytest.mark.rule("R10")
def test_a_deadlock_that_local_work_swallows_commits_nothing_of_it(books: Books) -> None:
    books.run("create table account (id int primary key, balance int)", "insert into account values (1, 0), (2, 0)")
    books.run("create table heavy (id int primary key)")
    waiting = threading.Event()

    def rival() -> None:
        with books.engine.begin() as connection:
            connection.exec_driver_sql("insert into heavy select seq from seq_1_to_500")  # so it is spared
            connection.exec_driver_sql("update account set balance = 2 where id = 2")
            waiting.set()
            connection.exec_driver_sql("update account set balance = 2 where id = 1")

    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(TransactionError, match="back inside its block"),
        books.evidence.work(books.id(1)) as connection,
    ):
        connection.exec_driver_sql("update account set balance = 1 where id = 1")
        other = pool.submit(rival)
        assert waiting.wait(30)
        with pytest.raises(OperationalError, match="Deadlock"):
            connection.exec_driver_sql("update account set balance = 1 where id = 2")
        enter(connection, 7)
        other.result(30)
    assert (books.entries(), books.outcomes()) == (set(), {})
    with books.engine.connect() as connection:
        assert connection.scalars(text("select balance from account")).all() == [2, 2]
