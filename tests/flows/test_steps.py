"""Calls about sagas whose answers are lost: whatever was written is found again, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from tests.contracts.samples import COMMIT, ROLLBACK, new_group
from tests.contracts.step_contract import opened, settle, step, written
from tests.scene.probe import Probe, pid_of
from tests.scene.stored import Stored
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.flows.requests import Begin, Close, Mark, RecordSteps, Release
from txsaga.flows.step import StepEvent
from txsaga.store.pipeline import ConnectionLost, PipelineConnection
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R14")]


@pytest.fixture
def store(home_url: str) -> Iterator[Store]:
    store = open_store(home_url)
    yield store
    store.close()


@pytest.fixture
def stored(home_url: str) -> Stored:
    return Stored(home_url)


def lose_one(patch: pytest.MonkeyPatch, *, done: bool) -> None:
    """Let the connection break once, behind what was sent or before it."""
    real, left = PipelineConnection.exchange, [1]

    def exchange(line: PipelineConnection, calls: Sequence[Any], **how: Any) -> Any:  # as the real one
        if not left:
            return real(line, calls, **how)
        left.clear()
        if done:
            real(line, calls, **how)
        line.close()
        raise ConnectionLost("gone")

    patch.setattr(PipelineConnection, "exchange", exchange)


@pytest.mark.parametrize("done", [True, False])
def test_a_begin_is_there_once(store: Store, stored: Stored, monkeypatch: pytest.MonkeyPatch, done: bool) -> None:
    group = new_group(store)
    lose_one(monkeypatch, done=done)
    first, second = store.work.write([Begin(group, steps=(step(1),)), Begin(group, steps=(step(1), step(2)))])
    assert isinstance(first, TxRecord) and isinstance(second, TxRecord)
    assert stored.rows("SELECT txid, count(*) FROM step GROUP BY txid ORDER BY txid") == [
        (first.txid, 1),
        (second.txid, 2),
    ]
    assert stored.value("SELECT count(*) FROM tx") == stored.value("SELECT count(*) FROM saga") == 2
    assert written(store, RecordSteps(first, [step(2)])) is None


@pytest.mark.parametrize("done", [True, False])
def test_of_begins_in_one_batch_those_with_steps_are_found_again(
    store: Store, stored: Stored, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    group = new_group(store)
    lose_one(monkeypatch, done=done)
    plain, saga = store.work.write([Begin(group), Begin(group, steps=(step(1),))])
    assert isinstance(plain, TxRecord) and isinstance(saga, TxRecord)
    assert plain.txid != saga.txid
    assert stored.rows("SELECT txid FROM saga") == stored.rows("SELECT txid FROM step") == [(saga.txid,)]
    assert written(store, RecordSteps(saga, [step(2)])) is None


@pytest.mark.parametrize("done", [True, False])
def test_a_step_and_what_became_of_the_one_before_are_there_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    life = opened(store)
    lose_one(monkeypatch, done=done)
    assert written(store, RecordSteps(life, [step(2)], [Mark(life.txid, 1, 1, StepEvent.FINISH)])) is None
    assert [each.state.value for each in store.work.steps(life.txid)] == ["done", "started"]


@pytest.mark.parametrize("done", [True, False])
def test_a_decision_stands_and_its_steps_are_to_be_undone(
    store: Store, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    life = opened(store)
    with monkeypatch.context() as patch:
        lose_one(patch, done=done)
        assert written(store, settle(life, Decision.ROLLBACK)) is Decision.ROLLBACK
    assert [each.state.value for each in store.work.steps(life.txid)] == ["compensating"]
    with monkeypatch.context() as patch:
        lose_one(patch, done=done)
        written(store, Close(life.txid, 1, [Mark(life.txid, 1, 1, StepEvent.UNDO)]))
    assert store.work.sagas() == []


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
def test_a_decision_in_one_batch_with_a_begin_is_there_once(
    store: Store, stored: Stored, monkeypatch: pytest.MonkeyPatch, decision: Decision, done: bool
) -> None:
    life = opened(store, step(1), step(2, compensation=None))
    done_before = tuple(Mark(life.txid, life.owner, number, StepEvent.FINISH) for number in (1, 2))
    lose_one(monkeypatch, done=done)
    word = settle(life, decision)._replace(marks=done_before)
    begin = Begin(life.group, steps=(step(1),))  # which is looked up by its ticket
    stands, other = store.work.write([word, begin])
    assert stands is decision and isinstance(other, TxRecord)
    assert stored.rows("SELECT decision FROM op") == [(int(decision),)]
    assert stored.rows("SELECT txid, count(*) FROM step GROUP BY txid ORDER BY txid") == [
        (life.txid, 2),
        (other.txid, 1),
    ]
    found = "done" if decision is COMMIT else "compensating"
    assert [each.state.value for each in store.work.steps(life.txid)] == [found, found]
    assert stored.value("SELECT count(*) FROM event") == 1


def test_a_driver_that_is_superseded_meanwhile_lets_go_of_nothing(store: Store, stored: Stored, home_url: str) -> None:
    life = opened(store)
    written(store, settle(life, ROLLBACK))
    with closing(Probe(home_url)) as probe, ThreadPoolExecutor(1) as thread, probe.session() as claiming:
        pid = pid_of(claiming)
        claiming.execute(text("UPDATE saga SET driver = 'bert' WHERE txid = :txid"), {"txid": life.txid})
        claiming.execute(text("UPDATE tx SET owner = owner + 1 WHERE txid = :txid"), {"txid": life.txid})
        resting = thread.submit(lambda: written(store, Release(life.txid, life.owner, timedelta(0), "away")))
        probe.wait_for_block(pid)
        claiming.commit()
        assert resting.result(10) is False
    assert stored.rows("SELECT driver, why FROM saga") == [("bert", None)]
