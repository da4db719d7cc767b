"""Functions and rows have one outcome, whoever brings it to its end."""

import pytest

from tests.flows.coordinated.bank import Bank, pay
from tests.resources.callables.tills import Till
from txsaga.core.decision import Decision
from txsaga.errors import ConfigError, Unfinished
from txsaga.flows.branch import BranchState


@pytest.fixture
def till(bank: Bank) -> Till:
    """Give a till that takes part in the bank's transactions."""
    till = Till()
    bank.broker.enlist("till", till.callables)
    return till


def test_a_function_and_a_row_are_committed_together(bank: Bank, till: Till) -> None:
    with bank.producer.coordinated("current", "till") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.on("till") as take:
            assert take(item=7) == 7
        assert (till.reserved, till.taken) == ({take.id: 7}, {})
    assert (till.reserved, till.taken) == ({}, {take.id: 7})
    assert bank.balances()["current"] == 90


def test_a_no_of_another_cancels(bank: Bank, till: Till) -> None:
    with pytest.raises(ValueError), bank.producer.coordinated("current", "till") as tx:
        with tx.on("till") as take:
            take(item=7)
        raise ValueError("no")
    assert (till.reserved, till.taken, till.cancelled) == ({}, {}, [take.id])


def test_a_try_that_refuses_rolls_the_row_back(bank: Bank, till: Till) -> None:
    till.refuses = True
    with pytest.raises(ValueError, match="no money"), bank.producer.coordinated("current", "till") as tx:
        with tx.on("current") as connection:
            pay(connection, -10)
        with tx.on("till") as take:
            take(item=7)
    assert bank.balances()["current"] == 100


def test_a_confirm_that_fails_is_finished_by_recovery(bank: Bank, till: Till) -> None:
    till.broken = 1
    with pytest.raises(Unfinished, match="till"), bank.producer.coordinated("current", "till") as tx:
        with tx.on("till") as take:
            take(item=7)
        with tx.on("current") as connection:
            pay(connection, -10)
    assert till.taken == {}
    assert bank.balances()["current"] == 90
    bank.recover()
    assert till.taken == {take.id: 7}
    assert tx.txid is not None
    assert bank.states(tx.txid)["till"] is BranchState.COMMITTED


@pytest.mark.rule("R9")
@pytest.mark.parametrize(("decided", "voted"), [(True, True), (False, True), (False, False)])
def test_recovery_ends_what_a_dead_owner_tried(bank: Bank, till: Till, decided: bool, voted: bool) -> None:
    tx = bank.producer.coordinated("current", "till").__enter__()
    with tx.on("till") as take:
        take(item=7)
    owner = tx._branches
    if voted:
        votes = owner.work.named(owner.work.prepare())
    if decided:
        owner.decide(Decision.COMMIT, "the block ended", votes=votes)
    for key in owner.work.used:
        owner.work.take_out(key)  # as the death of a process does: nothing is given back
    owner.leave()
    bank.recover()
    assert till.taken == ({take.id: 7} if decided else {})
    assert till.cancelled == ([] if decided else [take.id])
    assert tx.txid is not None
    assert bank.states(tx.txid)["till"] is (BranchState.COMMITTED if decided else BranchState.ROLLED_BACK)


@pytest.mark.req("IBM-14")
def test_functions_have_no_auxiliary_lane(bank: Bank, till: Till) -> None:
    with bank.producer.coordinated("till") as tx, pytest.raises(ConfigError, match="auxiliary"):
        tx.lane("till")
