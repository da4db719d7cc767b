"""What databases keep of branches goes once nobody asks about them: not before, and nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import text

from tests.flows.coordinated.bank import Bank
from tests.flows.coordinated.test_block import transfer
from txsaga.core.decision import Decision
from txsaga.errors import RightsMissing
from txsaga.flows.branch import BranchId
from txsaga.flows.recovery import Recovery, RecoveryCleanup
from txsaga.resources.participant import Ages, Participant

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R10")]

NOW = Ages(timedelta(0), timedelta(0))


def rows(bank: Bank, which: str = "true") -> set[tuple[str, int, str]]:
    """Return the evidence of branches."""
    found = set[tuple[str, int, str]]()
    for name, engine in bank.engines.items():
        with engine.connect() as connection:
            told = connection.execute(text(f"select txid, branch from txsaga_evidence where branch <> '' and {which}"))
            found |= {(name, txid, branch) for txid, branch in told}
    return found


def tidied(bank: Bank, ages: Ages = NOW) -> int:
    """Tidy both databases up."""
    tidying = RecoveryCleanup(bank.broker.kernel, ages)
    return sum(tidying.settle(bank.broker.kernel.participant(name)[1]) for name in bank.engines)


def test_a_row_goes_when_its_decision_is_acknowledged_and_not_before(bank: Bank) -> None:
    life = bank.left()
    assert rows(bank) == set()  # it is prepared
    participant = bank.broker.kernel.participant("current")[1]
    id = BranchId(bank.broker.identity.transaction(life.txid), 1)
    participant.finish(id, Decision.COMMIT)  # by somebody who could not note it
    assert (tidied(bank), len(rows(bank))) == (0, 1)
    bank.recover()
    assert len(rows(bank)) == 2
    assert (tidied(bank), rows(bank)) == (2, set())


def test_a_row_that_is_young_and_a_barrier_stay(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
        with tx.lane("current") as connection:
            connection.exec_driver_sql("insert into account values (9, 0)")
    bank.broker.kernel.notes.flush()
    gone = bank.producer.coordinated("current", key="gone").__enter__()
    gone.lane("current").__enter__().exec_driver_sql("insert into account values (10, 0)")
    gone._branches.leave()  # killed in a unit, which recovery puts a barrier in the way of
    bank.recover()
    before, committed = rows(bank), rows(bank, "outcome = 1")
    assert committed
    assert len(before - committed) == 1
    assert (tidied(bank, Ages(timedelta(hours=1), timedelta(hours=1))), rows(bank)) == (0, before)
    assert tidied(bank, Ages(timedelta(0), timedelta(hours=1))) == len(committed)
    assert rows(bank) == before - committed


@pytest.mark.rule("R9")
def test_what_stands_against_its_decision_stays_until_it_is_forgotten(bank: Bank) -> None:
    life = bank.left(decided=False, key="transfer-7")
    bank.overrule(life, "mortgage", Decision.COMMIT)
    bank.recover()
    assert (tidied(bank), rows(bank)) == (0, {("mortgage", life.txid, "xa:2.1")})


def test_what_the_store_does_not_know_stays(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
    bank.recover()
    for engine in bank.engines.values():
        with engine.begin() as connection:
            connection.exec_driver_sql("update txsaga_evidence set txid = txid + 1000")
    assert (tidied(bank), len(rows(bank))) == (0, 2)


def test_recovery_tidies_up_and_a_missing_right_costs_room_only(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[str] = []

    def sweep(participant: Participant, store: str, *_: object) -> int:
        asked.append(participant.name)
        raise RightsMissing("grant DELETE")

    bank.left()
    for name in bank.engines:
        monkeypatch.setattr(type(bank.broker.kernel.participant(name)[1]), "sweep", sweep)
    assert bank.recover() == 2
    assert sorted(asked) == ["current", "mortgage"]
    assert "its old records are kept" in caplog.text
    recovery = Recovery(bank.broker.kernel)
    for _ in range(2):
        recovery._scan_at = 0.0
        recovery.run_once()
    assert len(asked) == 4  # each once in a while
