"""The row that opens a local transaction is sent with its BEGIN, and where that can't be, by the driver."""

import pytest
from psycopg.pq.abc import PGconn

from tests.evidence.books import Books, OpenEngine, enter
from tests.evidence.conftest import POSTGRESQL
from txsaga.core.decision import Decision
from txsaga.errors import DecidedOtherwise, StoreUnavailable
from txsaga.evidence import libpq, local_transaction

pytestmark = pytest.mark.parametrize("kind", [POSTGRESQL])

Sent = list[str]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Give what is sent past the driver."""
    texts, send = Sent(), libpq.send

    def noted(session: PGconn, text: str, patience: float) -> None:
        texts.append(text)
        send(session, text, patience)

    monkeypatch.setattr(libpq, "send", noted)
    return texts


def first_word(text: str) -> str:
    return text.split()[0].rstrip(";").lower()


def work(books: Books, *ids: int) -> None:
    for id in ids:
        with books.evidence.work(books.id(id)) as connection:
            enter(connection, id)


def test_the_row_comes_with_its_begin(open_engine: OpenEngine, sent: Sent) -> None:
    books = Books(open_engine(pool_size=1, max_overflow=0)).open()
    work(books, 1, 2)
    assert (books.entries(), books.outcomes()) == ({1, 2}, {1: 1, 2: 1})
    assert [first_word(text) for text in sent] == ["begin", "begin"]
    assert f"values ('{books.store.uuid.hex}', 1, 2, " in sent[-1]


def test_a_transaction_has_the_level_that_its_engine_says(open_engine: OpenEngine, sent: Sent) -> None:
    books = Books(open_engine(isolation_level="SERIALIZABLE")).open()
    with books.evidence.work(books.id(1)) as connection:
        assert connection.exec_driver_sql("show transaction_isolation").scalar_one() == "serializable"
    assert "ISOLATION LEVEL SERIALIZABLE" in sent[-1]


def test_a_barrier_that_stands_says_so(open_engine: OpenEngine) -> None:
    books = Books(open_engine(pool_size=1, max_overflow=0)).open()
    work(books, 1)
    assert books.evidence.fence(books.id(2)) is not None
    with pytest.raises(DecidedOtherwise) as caught:
        work(books, 2)
    assert caught.value.standing == Decision.ROLLBACK.name
    work(books, 3)
    assert books.entries() == {1, 3}


def test_a_session_that_is_gone_is_the_drivers_to_tell(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(open_engine()).open()
    work(books, 1)

    def lost(session: PGconn, text: str, patience: float) -> None:
        raise libpq.SessionLost("the server left")

    with monkeypatch.context() as patch:
        patch.setattr(libpq, "send", lost)
        work(books, 2)
    assert books.entries() == {1, 2}


def test_a_server_that_says_nothing_is_not_waited_for_for_ever(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(open_engine()).open()
    work(books, 1)
    monkeypatch.setattr(local_transaction, "PATIENCE", 0.2)
    with books.engine.connect() as other:  # it holds the row back
        other.exec_driver_sql("lock table txsaga_evidence in share row exclusive mode")
        with pytest.raises(StoreUnavailable, match=r"does not answer: no answer for 0.2 s"):
            work(books, 2)
    work(books, 3)
    assert books.entries() == {1, 3}


def test_what_is_interrupted_leaves_no_answer_to_the_next_user(
    open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = Books(open_engine(pool_size=1, max_overflow=0)).open()
    work(books, 1)

    def interrupted(session: PGconn, *_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(libpq, "receive", interrupted)
        work(books, 2)
    work(books, 3)
    assert books.entries() == {1, 3}
