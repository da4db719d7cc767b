"""What dead owners leave in real databases, and what administrators do to it meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import create_engine

import txsaga
from tests.flows.coordinated.bank import START, Bank
from tests.services.free_port import free_port
from txsaga.checkback.by_hand import ByHand
from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId, BranchState
from txsaga.flows.recovery import Recovery
from txsaga.store import founding
from txsaga.store.connection import make_engine, parse_url, transaction

pytestmark = pytest.mark.postgres

UNTOUCHED = {"current": START, "mortgage": START}
PAID = {"current": START - 10, "mortgage": START + 10}


@pytest.mark.rule("R9")
@pytest.mark.parametrize("key", [None, "transfer-7"], ids=["no key", "keyed"])
def test_an_owner_that_died_before_the_decision_leaves_nothing_and_one_behind_it_everything(
    bank: Bank, key: str | None
) -> None:
    before = bank.left(decided=False, key=key)
    bank.recover()
    assert (bank.balances(), bank.prepared()) == (UNTOUCHED, [])
    behind = bank.left()
    assert len(bank.prepared()) == 2
    bank.recover()
    assert (bank.balances(), bank.prepared()) == (PAID, [])
    view = bank.broker.kernel.store.overview.transaction(before.txid)
    assert view is not None
    assert view.decision is Decision.ROLLBACK
    assert set(bank.states(before.txid).values()) == {BranchState.ROLLED_BACK}
    assert set(bank.states(behind.txid).values()) == {BranchState.COMMITTED}


@pytest.mark.req("WM-45")
@pytest.mark.rule("R9")
def test_who_decided_over_our_head_is_found_out_in_the_database_itself(bank: Bank) -> None:
    lost, kept = bank.left(), bank.left(decided=False, account=2, key="transfer-7")
    bank.overrule(lost, "mortgage", Decision.ROLLBACK)
    bank.overrule(kept, "mortgage", Decision.COMMIT)
    bank.recover()
    assert bank.states(lost.txid) == {
        "current": BranchState.COMMITTED,
        "mortgage": BranchState.HEURISTIC_ROLLED_BACK,
    }
    assert bank.states(kept.txid) == {
        "current": BranchState.ROLLED_BACK,
        "mortgage": BranchState.HEURISTIC_COMMITTED,
    }
    assert bank.balances() == {"current": START - 10, "mortgage": START}
    assert bank.balances(2) == {"current": None, "mortgage": 10}


def test_prepared_transactions_of_others_stay(bank: Bank) -> None:
    with bank.engines["current"].connect() as connection:
        connection.exec_driver_sql("insert into account values (2, 0)")
        connection.exec_driver_sql("prepare transaction 'somebody else''s'")
    bank.left(decided=False)
    bank.recover()
    assert bank.prepared() == ["somebody else's"]


def test_a_database_that_does_not_listen_does_not_keep_the_other_one(bank: Bank, home_url: str) -> None:
    life = bank.left()
    closed = create_engine(f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing")
    resources = {"current": closed, "mortgage": bank.engines["mortgage"]}
    with txsaga.connect(home_url, resources=resources, roles=False, answering=False, env={}) as elsewhere:
        assert replace(bank, broker=elsewhere).recover() == 1
    closed.dispose()
    assert bank.states(life.txid) == {"current": BranchState.PREPARED, "mortgage": BranchState.COMMITTED}
    assert bank.recover() == 1
    assert bank.balances() == PAID


@pytest.mark.rule("R10")
def test_databases_that_changed_names_are_not_told(bank: Bank, home_url: str) -> None:
    life = bank.left()
    names = dict(zip(bank.engines, reversed(list(bank.engines.values())), strict=True))
    with txsaga.connect(home_url, resources=names, roles=False, answering=False, env={}) as elsewhere:
        assert replace(bank, broker=elsewhere).recover() == 0
    assert len(bank.prepared()) == 2
    assert set(bank.states(life.txid).values()) == {BranchState.PREPARED}
    assert bank.recover() == 2


@pytest.mark.rule("R8")
def test_what_only_a_later_life_of_the_store_rolled_back_is_a_hazard(bank: Bank, home_url: str) -> None:
    undecided, decided = bank.left(decided=False, key="transfer-7"), bank.left(account=2)
    unnamed, settled = bank.left(decided=False, account=3), bank.left(decided=False, account=4)
    ByHand(bank.broker.kernel).decide(settled.txid, Decision.ROLLBACK, who="anna", why="asked the bank")
    for table in ("branch", "tx"):
        bank.stored.rows(f"DELETE FROM {table} WHERE txid = {unnamed.txid}")
    bank.broker.close()
    address, namespace = parse_url(home_url)
    engine = make_engine(address, namespace)
    with transaction(engine) as connection:
        founding.adopt(connection, namespace)
    engine.dispose()
    with txsaga.connect(home_url, resources=bank.engines, roles=False, answering=False, env={}) as adopted:
        later = replace(bank, broker=adopted)
        later.recover()
        assert set(later.states(undecided.txid).values()) == {BranchState.HEURISTIC_HAZARD}
        assert set(later.states(decided.txid).values()) == {BranchState.COMMITTED}
        assert set(later.states(settled.txid).values()) == {BranchState.ROLLED_BACK}
        assert len(later.prepared()) == 4
        recovery = Recovery(adopted.kernel)
        assert recovery.run_once() == 0
        named = [BranchId(adopted.identity.transaction(unnamed.txid), number).gid for number in (1, 2)]
        assert [recovery.seen[name].earlier for name in ("current", "mortgage")] == [(gid,) for gid in named]


def test_an_engine_recovers(bank: Bank) -> None:
    assert "recovery" in [role.name for role in bank.broker.roles()]
