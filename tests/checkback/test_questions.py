"""Questions are taken away by the member that answers and by the leader of a round: neither waits for the other."""

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import text

from tests.contracts.question_contract import SOON, ask, enlist, in_doubt, led
from tests.contracts.samples import ROLLBACK, decided, end_of, new_group
from tests.scene.stored import Stored
from txsaga.checkback.questions import QuestionAnswer
from txsaga.core.decision import LocalState
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.core]


@pytest.fixture
def store(home_url: str) -> Iterator[Store]:
    with closing(open_store(home_url)) as opened_store:
        yield opened_store


@pytest.mark.req("RMQ-85", "RMQ-61")
@pytest.mark.timeout(30)
def test_a_round_leaves_questions_to_who_is_taking_them_away(store: Store, home_url: str) -> None:
    """Each in an order of its own: a round that waited could be waited for, and one of them would fail."""
    stored = Stored(home_url)
    group, lead = new_group(store), led(store)
    enlist(store, group, "anna")
    txids = in_doubt(store, group, 3)
    store.questions.ask([ask(txid, group, patience=SOON) for txid in txids], lead)
    store.questions.take("anna", 10)
    stored.let_pass(60)
    with store.engine.connect() as answering:
        answering.execute(text(f'DELETE FROM "{stored.namespace}".question WHERE txid = :t'), {"t": txids[1]})
        assert store.questions.collect() == 2
        answering.rollback()
    assert store.questions.collect() == 1


@pytest.mark.req("RMQ-85", "RMQ-12")
@pytest.mark.timeout(30)
def test_the_sweep_leaves_what_is_decided_to_who_was_asked_about_it(store: Store, home_url: str) -> None:
    stored = Stored(home_url)
    group, lead = new_group(store), led(store)
    enlist(store, group, "anna")
    (txid,) = in_doubt(store, group)
    store.questions.ask([ask(txid, group)], lead)
    (asked,) = store.questions.take("anna", 10)
    decided(store, end_of(asked.doubt, ROLLBACK))  # type: ignore[arg-type]  # its token is genuine
    with store.engine.connect() as answering:
        answering.execute(text(f'DELETE FROM "{stored.namespace}".doubt WHERE txid = :t'), {"t": txid})
        store.doubts.sweep(timedelta(0))  # else it waits, and fails after five seconds
        answering.rollback()
    store.questions.answered("anna", [QuestionAnswer(txid, LocalState.ROLLBACK, "no")])
    assert stored.rows("SELECT FROM doubt") == []
