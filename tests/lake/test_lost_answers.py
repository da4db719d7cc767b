"""A decision that is written and whose answer is lost: its tables are there, and whoever asks is told so."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import create_engine

from tests.lake.books import LEDGER, MONDAY, Books, rows
from txsaga.core.decision import Decision
from txsaga.errors import OutcomeUnknown
from txsaga.flows import owner
from txsaga.messages import decide
from txsaga.messages.decide import Decider

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R14"), pytest.mark.core]


def lose_an_answer(monkeypatch: pytest.MonkeyPatch, of: object, method: str) -> None:
    """Let the first answer be lost behind what was done."""
    answered, lost = getattr(of, method), list[object]()

    def answer(*given: Any, **named: Any) -> object:  # whatever it takes
        found = answered(*given, **named)
        if not lost:
            lost.append(found)
            raise OutcomeUnknown("the line broke")
        return found

    monkeypatch.setattr(of, method, answer)


def test_what_was_published_stays_where_it_is(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    books.create()
    lose_an_answer(monkeypatch, Decider, "_once")
    with books.producer.transaction() as tx:
        tx.table(LEDGER).append(rows(1))
    assert tx.decision is Decision.COMMIT
    assert books.ids() == [1]
    books.append(2)
    assert books.ids() == [1, 2]


def test_an_engine_that_hears_nothing_takes_nothing_away(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    books.create()
    with pytest.raises(OutcomeUnknown), monkeypatch.context() as patch:
        patch.setattr(decide, "patiently", lambda *given: (_ for _ in ()).throw(OutcomeUnknown("away")))
        lose_an_answer(patch, Decider, "_once")
        with books.producer.transaction() as tx:
            tx.table(LEDGER).overwrite(rows(1), where={"day": MONDAY})
    assert books.ids() == [1]


def test_a_coordinated_transaction_is_told_what_stands(
    books: Books, foreign_databases: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    books.create()
    engine = create_engine(foreign_databases())
    books.broker.register("office", engine)
    lose_an_answer(monkeypatch, owner, "_written")
    with books.producer.coordinated("office") as tx:
        with tx.on("office") as connection:
            connection.exec_driver_sql("create table note (id int)")
        tx.table(LEDGER).append(rows(1))
    assert tx.decision is Decision.COMMIT
    assert books.ids() == [1]
    engine.dispose()
