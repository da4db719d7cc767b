"""A later owner of a key takes a transaction over: what the one before prepared keeps nobody waiting."""

from __future__ import annotations

import pytest

from tests.flows.coordinated.bank import Bank, pay
from tests.flows.coordinated.test_block import PAID, transfer
from tests.scene.elsewhere import Elsewhere
from txsaga.core.decision import Decision
from txsaga.errors import Superseded
from txsaga.flows.branch import BranchState
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.recovery import Recovery

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R4"), pytest.mark.rule("R9")]


@pytest.fixture(autouse=True)
def no_waiting(bank: Bank) -> None:
    """Let whoever waits for a lock fail, instead of the test."""
    for engine in bank.engines.values():
        with engine.begin() as connection:
            connection.exec_driver_sql(f"alter database {engine.url.database} set lock_timeout = '2s'")
        engine.dispose()


def opened(bank: Bank) -> Coordinated:
    """Open a block and work in it."""
    block = Elsewhere(bank.producer.coordinated("current", "mortgage", key="transfer-7")).__enter__()
    transfer(block, "before")
    return block


def test_what_a_dead_owner_prepared_is_rolled_back_by_the_next(bank: Bank) -> None:
    before = opened(bank)
    before._branches.work.prepare()
    before._branches.work.leave()  # its process is gone
    with bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        transfer(tx, "after")
    assert (bank.balances(), bank.told(), bank.prepared()) == (PAID, ["after"], [])
    bank.recover()
    assert tx.txid is not None
    assert set(bank.states(tx.txid)) == {"current", "mortgage"}


def test_an_owner_who_was_superseded_rolls_back_what_it_prepared(bank: Bank) -> None:
    before = opened(bank)
    after = bank.producer.coordinated("current", "mortgage", key="transfer-7").__enter__()
    with pytest.raises(Superseded):
        before.__exit__(None, None, None)
    assert bank.prepared() == []
    transfer(after, "after")
    after.__exit__(None, None, None)
    assert (bank.balances(), bank.told()) == (PAID, ["after"])


def test_an_owner_who_was_superseded_in_one_phase_commits_nothing(bank: Bank) -> None:
    before = Elsewhere(bank.producer.coordinated("current", "mortgage", key="transfer-7")).__enter__()
    with before.on("current") as connection:
        pay(connection, -10)
    after = bank.producer.coordinated("current", "mortgage", key="transfer-7").__enter__()
    with pytest.raises(Superseded):
        before.__exit__(None, None, None)
    transfer(after, "after")
    after.__exit__(None, None, None)
    assert (bank.balances(), bank.told()) == (PAID, ["after"])


def test_what_a_superseded_owner_prepares_late_is_rolled_back_by_recovery(bank: Bank) -> None:
    before = opened(bank)
    after = bank.producer.coordinated("current", "mortgage", key="transfer-7").__enter__()
    before._branches.work.prepare()
    before._branches.work.leave()  # its process is gone
    Recovery(bank.broker.kernel).run_once()
    assert bank.prepared() == []
    transfer(after, "after")
    after.__exit__(None, None, None)
    assert (bank.balances(), bank.told()) == (PAID, ["after"])


def test_what_an_earlier_life_of_the_key_holds_keeps_the_next_one_not_waiting(bank: Bank) -> None:
    before = opened(bank)
    before._branches.work.prepare()
    before._branches.work.leave()  # its process is gone
    before._branches.decide(Decision.ROLLBACK, "somebody said so")
    assert len(bank.prepared()) == 2
    with bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        transfer(tx, "after")
    assert (bank.balances(), bank.told(), bank.prepared()) == (PAID, ["after"], [])
    assert before.txid is not None
    assert set(bank.states(before.txid).values()) == {BranchState.ROLLED_BACK}


@pytest.mark.rule("R12")
def test_behind_an_end_the_retry_itself_frees_what_is_prepared(bank: Bank) -> None:
    before = opened(bank)
    owner = before._branches
    votes = owner.work.named(owner.work.prepare(besides="mortgage"), last="mortgage")
    owner.seal("mortgage", [], votes)
    owner.work.leave()  # its process is gone, before the last resource commits
    with bank.producer.coordinated("current", "mortgage", key="transfer-7") as tx:
        transfer(tx, "after")
    assert tx.txid != before.txid
    assert (bank.balances(), bank.told(), bank.prepared()) == (PAID, ["after"], [])
