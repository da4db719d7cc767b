"""A local transaction and its evidence are one commit, or nothing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, InvalidRequestError

from tests.evidence.books import Books, OpenEngine, enter
from tests.evidence.conftest import MARIADB, POSTGRESQL
from txsaga.errors import DecidedOtherwise, OutcomeUnknown, TransactionError
from txsaga.evidence.database import SqlEvidence

ONE, TWO = 1, 2


@pytest.mark.rule("R10")
def test_work_and_its_evidence_are_committed_together(books: Books) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        assert books.evidence.read(books.id(ONE)) is None
        assert books.outcomes() == {}
    assert books.evidence.read(books.id(ONE)) == (True, {})
    assert (books.entries(), books.outcomes()) == ({7}, {ONE: 1})


def test_an_exception_of_the_block_rolls_back_and_passes_unchanged(books: Books) -> None:
    boom = ValueError("no such account")
    with pytest.raises(ValueError) as caught, books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        raise boom
    assert caught.value is boom
    assert (books.entries(), books.outcomes()) == (set(), {})
    assert books.evidence.read(books.id(ONE)) is None


def test_a_driver_error_in_the_block_passes_unchanged(books: Books) -> None:
    with pytest.raises(IntegrityError), books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        enter(connection, 7)
    assert (books.entries(), books.outcomes()) == (set(), {})


def test_the_commit_is_announced_just_before_and_just_after(books: Books) -> None:
    seen: list[tuple[bool, set[int]]] = []
    with books.evidence.work(books.id(ONE), lambda done: seen.append((done, books.entries()))) as connection:
        enter(connection, 7)
        assert seen == []
    assert seen == [(False, set()), (True, {7})]


def test_nothing_is_announced_of_work_that_fails(books: Books) -> None:
    seen: list[bool] = []
    with pytest.raises(ValueError), books.evidence.work(books.id(ONE), seen.append):
        raise ValueError
    assert seen == []


def test_an_announcement_that_fails_before_the_commit_rolls_back(books: Books) -> None:
    def fail(done: bool) -> None:
        raise RuntimeError("killed here")

    with pytest.raises(RuntimeError), books.evidence.work(books.id(ONE), fail) as connection:
        enter(connection, 7)
    assert (books.entries(), books.outcomes()) == (set(), {})


def test_the_same_work_a_second_time_does_not_run(books: Books) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
    with pytest.raises(DecidedOtherwise, match="already decided: COMMIT") as caught:
        books.evidence.work(books.id(ONE)).__enter__()
    assert (caught.value.txid, caught.value.standing) == (ONE, "COMMIT")


@pytest.mark.rule("R16")
def test_late_bodies_are_committed_with_the_work(books: Books) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        books.evidence.fill(connection, books.id(ONE), 0, b"first")
        books.evidence.fill(connection, books.id(ONE), 12, bytes(range(256)) * 300)
    assert books.evidence.read(books.id(ONE)) == (True, {0: b"first", 12: bytes(range(256)) * 300})


@pytest.mark.rule("R16")
def test_local_work_knows_which_late_bodies_lie_in_it(books: Books) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        assert books.evidence.filled(connection, books.id(ONE)) == frozenset()
        books.evidence.fill(connection, books.id(ONE), 3, b"kept")
        with pytest.raises(ValueError), connection.begin_nested():
            books.evidence.fill(connection, books.id(ONE), 4, b"gone with its savepoint")
            raise ValueError
        assert books.evidence.filled(connection, books.id(ONE)) == {3}
    assert books.evidence.read(books.id(ONE)) == (True, {3: b"kept"})


def test_late_bodies_go_with_work_that_is_rolled_back(books: Books) -> None:
    with pytest.raises(ValueError), books.evidence.work(books.id(ONE)) as connection:
        books.evidence.fill(connection, books.id(ONE), 0, b"first")
        raise ValueError
    assert books.count_rows() == 0


@pytest.mark.rule("R10")
def test_work_is_one_transaction_although_the_engine_commits_each_statement(
    open_engine: OpenEngine, books: Books
) -> None:
    engine = open_engine(isolation_level="AUTOCOMMIT", pool_size=1, max_overflow=0)
    evidence = SqlEvidence(engine)
    with pytest.raises(ValueError), evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        raise ValueError
    assert (books.entries(), books.outcomes()) == (set(), {})
    with evidence.work(books.id(TWO)) as connection:
        enter(connection, 8)
    assert (books.entries(), books.outcomes()) == ({8}, {TWO: 1})
    with engine.connect() as connection:  # and the connection commits each statement again
        enter(connection, 9)
        assert connection.get_execution_options().get("isolation_level") is None
    assert books.entries() == {8, 9}


def test_one_connection_is_enough(open_engine: OpenEngine, books: Books) -> None:
    evidence = SqlEvidence(open_engine(pool_size=1, max_overflow=0, pool_timeout=1))
    with evidence.work(books.id(ONE)) as connection:
        evidence.fill(connection, books.id(ONE), 0, b"late")
    assert evidence.fence(books.id(ONE)) == evidence.read(books.id(ONE)) == (True, {0: b"late"})
    with pytest.raises(DecidedOtherwise):
        evidence.work(books.id(ONE)).__enter__()


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_every_isolation_level_of_the_engine_gives_the_same_answers(
    open_engine: OpenEngine, books: Books, level: str
) -> None:
    evidence = SqlEvidence(open_engine(isolation_level=level))
    with evidence.work(books.id(ONE)) as connection:
        assert connection.get_isolation_level() == level
        assert evidence.read_many([books.id(ONE), books.id(TWO)]) == {}
        assert evidence.fence(books.id(ONE)) is None
    assert evidence.fence(books.id(ONE)) == (True, {})
    assert evidence.fence(books.id(TWO)) == (False, {})
    for txid in (ONE, TWO):
        with pytest.raises(DecidedOtherwise):
            evidence.work(books.id(txid)).__enter__()


@pytest.mark.rule("R10")
def test_a_swallowed_error_that_rolled_everything_back_is_not_taken_for_a_commit(books: Books) -> None:
    def lose(connection: Connection) -> None:
        if books.engine.dialect.name == "postgresql":
            with pytest.raises(IntegrityError):
                enter(connection, 7)
        else:  # what these do for a deadlock, or a disk that is full
            connection.exec_driver_sql("rollback")
            enter(connection, 8)

    announced: list[bool] = []
    with (
        pytest.raises(TransactionError, match="back inside its block"),
        books.evidence.work(books.id(ONE), announced.append) as connection,
    ):
        enter(connection, 7)
        lose(connection)
    assert (books.entries(), books.outcomes(), announced) == (set(), {}, [])


ENDS = {
    "leave": (OutcomeUnknown, "ended inside its block"),
    "go on": (InvalidRequestError, "closed transaction"),  # a second transaction would have no evidence
    "raise": (ValueError, "the user's own"),
}


@pytest.mark.parametrize("then", ENDS)
def test_of_work_that_rolls_back_itself_the_evidence_tells(books: Books, then: str) -> None:
    error, text = ENDS[then]
    with pytest.raises(error, match=text), books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        connection.rollback()
        if then == "go on":
            enter(connection, 8)
        elif then == "raise":
            raise ValueError("the user's own")
    assert books.entries() == set()
    assert books.evidence.fence(books.id(ONE)) == (False, {})


def test_a_savepoint_rolled_back_leaves_the_rest(books: Books) -> None:
    with books.evidence.work(books.id(ONE)) as connection:
        enter(connection, 7)
        with pytest.raises(IntegrityError), connection.begin_nested():
            enter(connection, 7)
        enter(connection, 8)
    assert (books.entries(), books.outcomes()) == ({7, 8}, {ONE: 1})


@contextmanager
def refused_in_a_child() -> Iterator[None]:
    """End a forked child here: it is to be refused, and its parent does not ask."""
    parent = os.getpid()
    try:
        yield
    except BaseException:
        if os.getpid() != parent:
            os._exit(0)
        raise
    finally:
        if os.getpid() != parent:
            os._exit(1)


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
@pytest.mark.parametrize("falls", [True, False], ids=["falls out", "comes to the end"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_leaves_local_work_to_its_parent(books: Books, falls: bool) -> None:
    with refused_in_a_child(), books.evidence.work(books.id(1)) as connection:
        enter(connection, 7)
        if child := os.fork():
            os.waitpid(child, 0)
            enter(connection, 8)
        elif falls:
            raise SystemExit
    assert (books.entries(), books.outcomes()) == ({7, 8}, {1: 1})


@pytest.mark.parametrize("kind", [POSTGRESQL, MARIADB])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_writes_nothing_of_a_step_on_its_parents_session(books: Books) -> None:
    def work(connection: Connection) -> dict[str, int]:
        enter(connection, 7)
        if child := os.fork():
            os.waitpid(child, 0)
        return {"of": child and 1}

    with refused_in_a_child():
        ran = books.evidence.steps.run(books.id(ONE), "step:1", work, {}, lambda _: None)
    assert ran.fresh
    assert books.evidence.steps.output(books.id(ONE), "step:1") == '{"of": 1}'
    assert books.entries() == {7}
