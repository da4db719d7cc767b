"""A transaction whose last resource stays away for long: what the others hold for it is never left to nobody."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import create_engine

import txsaga
from tests.flows.coordinated.bank import LONG_AGO, START, Bank
from tests.flows.coordinated.test_block import transfer
from tests.services.free_port import free_port
from txsaga.checkback.profile import CheckProfile
from txsaga.checkback.runs import RunState
from txsaga.core.lifecycle import TxState
from txsaga.flows.branch import BranchState
from txsaga.flows.coordinated import Coordinated
from txsaga.testing.checking import check_once

pytestmark = [pytest.mark.postgres, pytest.mark.rule("R12")]

ASKED = """
INSERT INTO doubt (txid, pgroup, keyed, check_at, remarks)
SELECT txid, pgroup, true, now(), jsonb_build_array(jsonb_build_object(
       'at', now(), 'who', 'check-back', 'answer', 'UNKNOWN', 'why', 'slow')) FROM tx WHERE txid = :txid"""
SHORT = CheckProfile(interval=timedelta(0), total_limit=timedelta(minutes=1))


class Host:
    """A host of flows that says the same of each run."""

    def __init__(self, said: RunState) -> None:
        self._said = said

    def state(self, run: str) -> RunState:
        """Say it."""
        return self._said


def ended(bank: Bank, run: str | None = None) -> Coordinated:
    """Leave a transaction as an owner does that dies behind the end, before its last resource commits."""
    tx = bank.producer.coordinated("current", "mortgage", run=run).__enter__()
    transfer(tx)
    owner = tx._branches
    votes = owner.work.named(owner.work.prepare(besides="mortgage"), last="mortgage")
    owner.seal("mortgage", tx._outbox.take(), votes)
    owner.leave()
    return tx


@pytest.mark.parametrize("run", [None, "flow-1"])
def test_what_waits_for_its_last_resource_is_not_parked_however_old_it_is(
    bank: Bank, home_url: str, run: str | None
) -> None:
    tx = ended(bank, run)
    assert tx.txid is not None
    bank.stored.let_pass(LONG_AGO)
    away = create_engine(f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing")
    resources = {**bank.engines, "mortgage": away}
    with txsaga.connect(home_url, resources=resources, roles=False, answering=False, env={}) as elsewhere:
        elsewhere.ask_runs(Host(RunState.UNREACHABLE))
        check_once(elsewhere, SHORT)
        view = elsewhere.kernel.store.overview.transaction(tx.txid)
    away.dispose()
    assert view is not None
    assert view.state == TxState.SEALED
    assert len(bank.prepared()) == 1
    bank.broker.ask_runs(Host(RunState.OVER))
    bank.recover()
    assert (bank.balances(), bank.told(), bank.prepared()) == ({"current": START, "mortgage": START}, [], [])
    assert set(bank.states(tx.txid).values()) == {BranchState.ROLLED_BACK}


def test_what_nothing_is_held_for_is_parked_by_its_age(bank: Bank, home_url: str) -> None:
    tx = ended(bank)
    assert tx.txid is not None
    bank.stored.rows("UPDATE branch SET state = 'rolled_back'")  # as if nothing of it were held anywhere
    bank.stored.let_pass(LONG_AGO)
    away = create_engine(f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing")
    with txsaga.connect(home_url, resources={"mortgage": away}, roles=False, answering=False, env={}) as elsewhere:
        check_once(elsewhere, SHORT)
        view = elsewhere.kernel.store.overview.transaction(tx.txid)
    away.dispose()
    assert view is not None
    assert view.state == TxState.PARKED


@pytest.mark.hole("H10")
def test_what_came_of_the_checks_of_a_slow_owner_stays_when_it_decides_after_all(bank: Bank) -> None:
    with bank.producer.coordinated("current", "mortgage", key="slow") as tx:
        transfer(tx)
        bank.stored.rows(ASKED, txid=tx.txid)
    assert bank.stored.rows("SELECT txid FROM doubt") == []
    assert bank.stored.rows("SELECT what, why FROM event WHERE what LIKE 'CHECK%'") == [("CHECK UNKNOWN", "slow")]
