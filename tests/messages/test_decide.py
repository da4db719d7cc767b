"""A decision whose answer was lost is asked for again; "unavailable" is never said of what may have been done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.contracts.samples import COMMIT, add, new_group, new_queues, opened, read, row
from tests.oracle import MemoryStore
from txsaga.core.announcer import Announcer
from txsaga.core.lifecycle import TxEvent
from txsaga.core.records import TxRecord
from txsaga.errors import (
    NotPrimary,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    Superseded,
    TxSagaError,
)
from txsaga.messages.decide import DecidedBy, Decider
from txsaga.messages.ledger_store import Ledger, Ledgers
from txsaga.testing import FakeClock

pytestmark = [pytest.mark.rule("R14"), pytest.mark.rule("R2")]

AWAY = StoreUnavailable("the home database did not answer")
LOST = OutcomeUnknown("the connection broke at COMMIT")


class Flaky(Ledgers):
    """Ledgers of a store that fails as a test wants it, one try after the other."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.before: deque[TxSagaError | None] = deque()  # each fails one try before anything is done
        self.behind: deque[TxSagaError | None] = deque()  # each hides the answer of one that was done
        self.tries = 0

    @contextmanager
    def open(self) -> Iterator[Ledger]:
        self.tries += 1
        if self.before and (failure := self.before.popleft()) is not None:
            raise failure
        with self.store.ledgers.open() as ledger:
            yield ledger
        if self.behind and (failure := self.behind.popleft()) is not None:
            raise failure


@pytest.fixture
def ledgers() -> Flaky:
    return Flaky(MemoryStore(FakeClock()))


@pytest.fixture
def life(ledgers: Flaky) -> TxRecord:
    """Give a closed transaction with one message."""
    (qid,), group = new_queues(ledgers.store), new_group(ledgers.store)
    life = opened(ledgers.store, group)
    add(ledgers.store, life, 1, row(qid, "a chair"))
    with ledgers.store.ledgers.open() as ledger:
        ledger.move(life.txid, TxEvent.SEAL)
    return life


def decider(ledgers: Flaky, patience: float = 30.0) -> Decider:
    return Decider(ledgers, Announcer(), patience)


def by(life: TxRecord) -> DecidedBy:
    return DecidedBy(who="owner 1", why="test", owner=life.owner)


@pytest.mark.parametrize("second", [AWAY, NotPrimary("a standby"), StoreError("the disk is full")])
def test_a_lost_answer_stays_unknown_whatever_the_store_says_next(
    ledgers: Flaky, life: TxRecord, second: TxSagaError
) -> None:
    ledgers.behind.append(LOST)
    ledgers.before += [None, second]
    with pytest.raises(OutcomeUnknown, match=str(life.txid)):
        decider(ledgers, patience=0).decide(life.txid, COMMIT, by(life))
    assert decider(ledgers).decide(life.txid, COMMIT, by(life)).won is False


@pytest.mark.parametrize("done", [True, False], ids=["it was done", "it was not done"])
def test_a_server_that_restarts_is_waited_for(ledgers: Flaky, life: TxRecord, done: bool) -> None:
    ledgers.before += [None if done else LOST, AWAY, AWAY]
    ledgers.behind.append(LOST if done else None)
    standing = decider(ledgers).decide(life.txid, COMMIT, by(life))
    assert (standing.decision, standing.won, ledgers.tries) == (COMMIT, not done, 4)
    assert read(ledgers.store, 1) == ["a chair"]


def test_before_any_answer_was_lost_an_error_means_that_nothing_was_done(ledgers: Flaky, life: TxRecord) -> None:
    ledgers.before.append(AWAY)
    with pytest.raises(StoreUnavailable):
        decider(ledgers).decide(life.txid, COMMIT, by(life))
    assert ledgers.tries == 1


def test_a_definite_answer_ends_the_asking(ledgers: Flaky, life: TxRecord) -> None:
    ledgers.before.append(LOST)
    with pytest.raises(Superseded):
        decider(ledgers).decide(life.txid, COMMIT, DecidedBy(who="owner 7", why="test", owner=7))
    assert ledgers.tries == 2
