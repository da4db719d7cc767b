"""Undecided blocks: they are written before their work, and what no transaction names is rolled back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.flows.coordinated.bank import START, TRANSFERS, Bank, pay
from txsaga.core.decision import Decision
from txsaga.core.lifecycle import TxState
from txsaga.core.records import TxRecord
from txsaga.errors import DecidedOtherwise, TransactionError
from txsaga.flows.branch import BranchState, Vote
from txsaga.flows.coordinated import Coordinated
from txsaga.flows.enlisted import Enlisted
from txsaga.flows.recovery import Recovery
from txsaga.flows.requests import Begin, BranchVote, Decide
from txsaga.messages.decide import DecidedBy

pytestmark = pytest.mark.postgres

UNTOUCHED = {"current": START, "mortgage": START}
PAID = {"current": START - 10, "mortgage": START + 10}


def transfer(tx: Coordinated) -> None:
    """Move ten, and tell."""
    for name, change in (("current", -10), ("mortgage", 10)):
        with tx.on(name) as connection:
            pay(connection, change)
    tx.send(TRANSFERS, b"ten")


def recover(bank: Bank) -> int:
    """Let recovery look at what the databases hold."""
    return Recovery(bank.broker.kernel, fresh=timedelta(0)).run_once()


def written(bank: Bank) -> list[Any]:
    """Return the rows of transactions and of their branches."""
    return [*bank.stored.rows("SELECT txid FROM tx"), *bank.stored.rows("SELECT txid FROM branch")]


def before(monkeypatch: pytest.MonkeyPatch, step: str, act: Callable[[], object]) -> None:
    """Let others act before an owner takes a step."""
    taken = getattr(Enlisted, step)

    def late(owner: Enlisted, *rest: object) -> object:
        act()
        return taken(owner, *rest)

    monkeypatch.setattr(Enlisted, step, late)


@pytest.mark.rule("R9")
@pytest.mark.parametrize("key", [None, "transfer-7"])
def test_a_block_and_its_branches_are_written_before_their_work(bank: Bank, key: str | None) -> None:
    with bank.producer.coordinated("current", "mortgage", key=key) as tx:
        assert written(bank) == [(tx.txid,)] * 3
        transfer(tx)
        assert bank.prepared() == []
    assert (bank.balances(), bank.told()) == (PAID, ["ten"])
    assert tx.txid is not None
    assert set(bank.states(tx.txid).values()) == {BranchState.COMMITTED}


@pytest.mark.rule("R9")
@pytest.mark.parametrize("voted", [["current"], ["current", "mortgage"]])
def test_what_an_owner_that_died_before_its_decision_holds_is_left_to_check_back(bank: Bank, voted: list[str]) -> None:
    tx = bank.producer.coordinated("current", "mortgage").__enter__()
    transfer(tx)
    tx._branches.work.ask(voted)
    tx._branches.leave()
    assert (recover(bank), len(bank.prepared())) == (0, len(voted))
    bank.recover()
    assert (bank.balances(), bank.prepared(), bank.told()) == (UNTOUCHED, [], [])
    assert bank.stored.rows("SELECT decision FROM op") == [(Decision.ROLLBACK,)]


@pytest.mark.rule("R9")
def test_a_branch_that_no_transaction_names_is_rolled_back_at_once(bank: Bank) -> None:
    lives = [bank.left(decided=False, account=account) for account in (1, 2, 3)]
    decided = bank.left(account=4)
    bank.stored.rows("DELETE FROM branch WHERE txid < " + str(decided.txid))  # as blocks of an earlier version began
    bank.stored.rows("DELETE FROM tx WHERE txid < " + str(decided.txid))
    assert recover(bank) == 2 * len(lives) + 2
    assert recover(bank) == 0
    assert (bank.prepared(), bank.balances(4)) == ([], {"current": -10, "mortgage": 10})


@pytest.mark.rule("R9")
def test_branches_that_an_earlier_version_shared_are_finished(bank: Bank) -> None:
    kernel, first = bank.broker.kernel, bank.left(decided=False)
    branches = kernel.store.work
    (other,) = branches.write([Begin(first.group, [])])
    assert isinstance(other, TxRecord)
    votes = [BranchVote(number, 1, Vote.PREPARED) for number in (1, 2)]
    branches.write(  # one commit of both, as that version wrote it
        [
            Decide(first, Decision.COMMIT, "its owner", "the block ended", votes=votes),
            Decide(other, Decision.COMMIT, "its owner", "done in the branches of the first"),
        ]
    )
    assert recover(bank) == 2
    assert (bank.balances(), bank.prepared()) == (PAID, [])
    known = branches.written([first.txid, other.txid])
    assert [known[life.txid].decision for life in (first, other)] == [Decision.COMMIT] * 2
    assert (set(bank.states(first.txid).values()), bank.states(other.txid)) == ({BranchState.COMMITTED}, {})


@pytest.mark.req("WM-45")
def test_a_branch_that_is_committed_by_hand_before_a_rollback_is_a_heuristic(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overruled() -> None:
        with bank.engines["mortgage"].connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            (gid,) = [each for each in bank.prepared() if each.endswith(":2.1")]
            connection.exec_driver_sql(f"COMMIT PREPARED '{gid}'")
        assert tx.txid is not None
        by = DecidedBy(who="check-back", why="its owner is silent", from_check=True, found=TxState.ACTIVE)
        assert bank.broker.kernel.decider.decide(tx.txid, Decision.ROLLBACK, by).won

    before(monkeypatch, "decide", overruled)
    with pytest.raises(DecidedOtherwise), bank.producer.coordinated("current", "mortgage") as tx:
        transfer(tx)
    bank.broker.kernel.notes.flush()
    assert tx.txid is not None
    assert bank.states(tx.txid)["mortgage"] is BranchState.HEURISTIC_COMMITTED
    assert bank.balances() == {"current": START, "mortgage": START + 10}


@pytest.mark.rule("R9")
def test_what_an_owner_decided_while_recovery_looked_is_left_to_it(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = bank.producer.coordinated("current", "mortgage").__enter__()
    transfer(tx)
    work = tx._branches.work
    votes = work.named(work.prepare())
    look = bank.broker.kernel.store.work.written

    def decided(txids: Any) -> Any:
        found = look(txids)
        monkeypatch.undo()
        tx._branches.decide(Decision.COMMIT, "the block ended", votes=votes)
        return found

    monkeypatch.setattr(type(bank.broker.kernel.store.work), "written", lambda _, txids: decided(txids))
    assert Recovery(bank.broker.kernel).run_once() == 0
    assert len(bank.prepared()) == 2
    tx._branches.finish(Decision.COMMIT)
    work.leave()
    assert bank.balances() == PAID


def test_a_handle_on_rows_that_is_never_written_to_changes_nothing(bank: Bank) -> None:
    bank.stored.rows("CREATE TABLE IF NOT EXISTS ledger_of_day (id int PRIMARY KEY)")
    with bank.producer.coordinated("current", "mortgage") as tx:
        tx.rows(f"{bank.stored.namespace}.ledger_of_day")
        transfer(tx)
    assert (bank.balances(), tx.decision, bank.prepared()) == (PAID, Decision.COMMIT, [])


@pytest.mark.rule("R2")
def test_work_that_begins_while_the_votes_are_under_way_is_refused_and_not_split_off(bank: Bank) -> None:
    tx = bank.producer.coordinated("current", "mortgage").__enter__()
    with tx.on("current") as connection:
        pay(connection, -10)
    votes = tx._branches.work.prepare()
    with tx.on("mortgage") as connection:  # by a thread that nobody has joined
        pay(connection, 10)
    with pytest.raises(TransactionError, match="'mortgage' began while the votes were under way"):
        tx._branches.work.named(votes)
    tx.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert (bank.balances(), bank.prepared()) == (UNTOUCHED, [])
