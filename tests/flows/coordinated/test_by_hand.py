"""Forgetting: heuristics only, with a reason, and on record in the same step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.flows.coordinated.fakes import Desk, FakeResource, desk
from txsaga.core.records import TxRecord
from txsaga.errors import ConfigError, ProtocolError, StoreUnavailable, UnknownBranch, UnknownTransaction
from txsaga.flows.branch import BranchState
from txsaga.flows.by_hand import BranchesByHand


@pytest.fixture
def bank() -> Iterator[Desk]:
    with desk("current", "mortgage") as opened:
        yield opened


@pytest.fixture
def lost(bank: Desk) -> TxRecord:
    """Give a transaction that is committed in one resource and was rolled back by hand in the other."""
    life = bank.decided("current", "mortgage")
    bank.resources["mortgage"].held.clear()
    bank.recovery().run_once()
    return life


@pytest.mark.req("WM-24")
def test_what_is_forgotten_is_on_record_and_its_resource_keeps_nothing_of_it(bank: Desk, lost: TxRecord) -> None:
    (done,) = BranchesByHand(bank.kernel).forget(lost.txid, who="anna", why="paid by hand")
    assert (done.branch.resource, done.left) == ("mortgage", "")
    assert bank.states(lost) == [BranchState.COMMITTED, BranchState.FORGOTTEN]
    record = bank.store.overview.history(lost.txid)[-1]
    assert (record.what, record.who) == ("BRANCH 2.1 FORGOTTEN", "anna")
    assert record.why == "paid by hand (it was heuristic_rolled_back)"
    assert bank.resources["mortgage"].forgotten == [bank.id(lost, 2)]
    assert bank.resources["current"].forgotten == []


@pytest.mark.req("WM-24")
def test_all_heuristics_are_forgotten_and_what_is_prepared_stays(bank: Desk, lost: TxRecord) -> None:
    other = bank.decided("current")
    bank.resources["current"].hazards.add(bank.id(other, 1))
    bank.recovery().run_once()
    prepared = bank.decided("current")
    done = list(BranchesByHand(bank.kernel).forget_all(who="anna", why="looked into"))
    assert [(each.branch.txid, each.branch.number) for each in done] == [(lost.txid, 2), (other.txid, 1)]
    assert bank.states(prepared) == [BranchState.PREPARED]
    assert list(BranchesByHand(bank.kernel).forget_all(who="anna", why="again")) == []


@pytest.mark.req("WM-48")
@pytest.mark.parametrize("number", [None, 1])
def test_what_is_prepared_is_not_forgotten(bank: Desk, number: int | None) -> None:
    life = bank.decided("current")
    with pytest.raises(ProtocolError, match=r"1\.1 prepared"):
        BranchesByHand(bank.kernel).forget(life.txid, number, who="anna", why="because")
    assert bank.states(life) == [BranchState.PREPARED]
    assert [each.what for each in bank.store.overview.history(life.txid)] == ["COMMIT"]


@pytest.mark.req("WM-48")
def test_what_is_not_there_is_not_forgotten(bank: Desk, lost: TxRecord) -> None:
    hand = BranchesByHand(bank.kernel)
    with pytest.raises(UnknownBranch, match="has no branch 7"):
        hand.forget(lost.txid, 7, who="anna", why="because")
    with pytest.raises(UnknownBranch):
        hand.forget(lost.txid, 2, 9, who="anna", why="because")
    with pytest.raises(UnknownTransaction):
        hand.forget(999, who="anna", why="because")
    with pytest.raises(ConfigError, match="give a reason"):
        hand.forget(lost.txid, who="anna", why=" ")
    with pytest.raises(ConfigError, match="give a reason"):
        list(hand.forget_all(who="anna", why=""))
    assert bank.states(lost)[1] is BranchState.HEURISTIC_ROLLED_BACK


def test_a_resource_that_is_away_keeps_its_row_and_nothing_else(bank: Desk, lost: TxRecord) -> None:
    bank.resources["mortgage"].failure = StoreUnavailable("nobody listens")
    (done,) = BranchesByHand(bank.kernel).forget(lost.txid, who="anna", why="it is gone for good")
    assert done.left == "nobody listens"
    assert bank.states(lost)[1] is BranchState.FORGOTTEN


@pytest.mark.rule("R10")
def test_nothing_is_dropped_from_another_database(bank: Desk, lost: TxRecord) -> None:
    other = bank.resources["mortgage"] = FakeResource("mortgage")
    (done,) = BranchesByHand(bank.kernel).forget(lost.txid, who="anna", why="because")
    assert "another database" in done.left
    assert other.forgotten == []


@pytest.mark.rule("R8")
def test_what_was_forgotten_while_its_resource_holds_it_is_not_presumed_either(bank: Desk) -> None:
    life = bank.decided("current")
    bank.resources["current"].hazards.add(bank.id(life, 1))
    bank.recovery().run_once()
    BranchesByHand(bank.kernel).forget(life.txid, who="anna", why="settled in the database later")
    assert bank.recovery().run_once() == 0
    assert bank.resources["current"].held == {bank.id(life, 1)}
