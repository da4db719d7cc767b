"""A number that was kept until its partition was dropped begins nothing: it could never be decided."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

import txsaga
from tests.contracts.samples import COMMIT
from tests.scene.stored import Stored
from tests.store.past import SPAN, Scene
from txsaga import LocalState
from txsaga.core.decision import Decision
from txsaga.core.records import TxRecord
from txsaga.errors import NumberLapsed
from txsaga.flows.calls import BeginBranches, DecisionRequest, OpenSaga, Settle, Start
from txsaga.flows.step import StepKind
from txsaga.store import schema
from txsaga.store.store import Store
from txsaga.wiring.connecting import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R13")]

WRITTEN = ("tx", "op", "step", "saga", "branch", "event")


@pytest.fixture
def store(home_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Give a store with small partitions."""
    monkeypatch.setattr(schema, "SPAN", SPAN)
    store = open_store(home_url)
    yield store
    store.close()


@pytest.fixture
def stored(home_url: str) -> Stored:
    """Give its rows."""
    return Stored(home_url)


@pytest.fixture
def old_and_new(store: Store, stored: Stored) -> tuple[TxRecord, TxRecord]:
    """Give a number whose partition was dropped since, and one that is fresh."""
    scene = Scene(store, stored)
    (old,) = store.branches.numbers(scene.group, 1)
    scene.leave()
    assert scene.drop() == 1
    (new,) = store.branches.numbers(scene.group, 1)
    return old, new


def pay() -> None:
    """Leave nothing."""


def rows(stored: Stored, txid: int) -> int:
    """Count what is written of a transaction."""
    return sum(int(stored.value(f"SELECT count(*) FROM {table} WHERE txid = :t", t=txid)) for table in WRITTEN)


def step() -> Start:
    """Give a step that leaves something."""
    return Start(1, "pay", StepKind.CALL, compensation='{"call": "back"}')


def word(life: TxRecord, decision: Decision) -> DecisionRequest:
    """Give the owner's word."""
    return DecisionRequest(life, decision, "owner 1", "it is done")


def test_a_saga_that_begins_under_it_is_told_to_begin_anew(
    store: Store, stored: Stored, old_and_new: tuple[TxRecord, TxRecord]
) -> None:
    old, new = old_and_new
    refused, begun = store.steps.write([OpenSaga(life.group, (step(),), None, life) for life in old_and_new])
    assert isinstance(refused, NumberLapsed)
    assert "begin the transaction anew" in str(refused)
    assert isinstance(begun, TxRecord)
    assert (rows(stored, old.txid), rows(stored, new.txid)) == (0, 3)


@pytest.mark.parametrize("decision", list(Decision))
def test_a_saga_that_is_begun_with_its_decision_is_told_so_too(
    store: Store, stored: Stored, old_and_new: tuple[TxRecord, TxRecord], decision: Decision
) -> None:
    begins = [OpenSaga(life.group, (), None, life) for life in old_and_new]
    settles = [Settle(word(begin.life, decision), "me", begin=begin) for begin in begins if begin.life]
    refused, standing = store.steps.write(settles)
    assert isinstance(refused, NumberLapsed)
    assert standing is decision
    assert rows(stored, old_and_new[0].txid) == 0


@pytest.mark.parametrize("decision", list(Decision))
def test_a_word_about_it_spoils_no_other(
    store: Store, stored: Stored, old_and_new: tuple[TxRecord, TxRecord], decision: Decision
) -> None:
    bank = store.registry.resource("bank", uuid4()).id
    words = [word(life, decision)._replace(resources=[bank]) for life in old_and_new]
    refused, standing = store.branches.write(words)
    assert isinstance(refused, NumberLapsed)
    assert standing is decision
    assert rows(stored, old_and_new[0].txid) == 0


def test_a_transaction_that_is_written_down_late_is_told_so(
    store: Store, stored: Stored, old_and_new: tuple[TxRecord, TxRecord]
) -> None:
    old, _ = old_and_new
    refused, begun = store.branches.write([BeginBranches(life.group, [], life=life) for life in old_and_new])
    assert isinstance(refused, NumberLapsed)
    assert isinstance(begun, TxRecord)
    assert rows(stored, old.txid) == 0


def test_a_number_ahead_of_all_partitions_is_not_taken_for_lapsed(store: Store, stored: Stored, home_url: str) -> None:
    group = Scene(store, stored).group
    stored.rows("SELECT setval('tx_seq', :last)", last=2 * SPAN)
    (life,) = store.branches.numbers(group, 1)
    begun = store.steps.write([OpenSaga(group, (step(),), None, life)])
    assert isinstance(begun[0], TxRecord)


def test_a_saga_that_waited_for_days_before_its_first_lasting_step_raises_and_its_next_try_is_good(
    home_url: str, store: Store, stored: Stored
) -> None:
    scene = Scene(store, stored)
    with txsaga.connect(home_url, roles=False, answering=False, env={}) as broker:
        producer = broker.producer("shop", checker=lambda _: LocalState.UNKNOWN)
        with pytest.raises(NumberLapsed), producer.saga() as saga:
            saga.step(pay)
            scene.leave()
            assert scene.drop() == 1
        with producer.saga() as saga:
            saga.step(pay)
    assert stored.rows("SELECT decision FROM op WHERE keyed") == [(int(COMMIT),)]
