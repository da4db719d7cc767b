"""What every store promises of reservations: a row for each branch that was tried, and nothing late that counts."""

# The name of a test is a sentence.

from __future__ import annotations

import pytest

from txsaga.core.decision import Decision
from txsaga.flows.branch import BranchId
from txsaga.resources.reservations import Reservation, ReservationState
from txsaga.store.store import Store
from txsaga.testing.participant_contract import new_branch

State = ReservationState
PAY = "payments"
ARGUMENTS = {"order": 7, "amounts": [10, None, {"ä": 1.5}]}


def known(store: Store, branch: BranchId) -> Reservation | None:
    """Return a reservation without its age."""
    found = store.reservations.find(branch)
    return found and found._replace(settled=None)


class ReservationContract:
    """Reservations, as the port promises them."""

    def test_the_arguments_are_there_before_the_try(self, store: Store) -> None:
        branch = new_branch()
        assert store.reservations.find(branch) is None
        assert store.reservations.begin(branch, PAY, ARGUMENTS)
        assert store.reservations.find(branch) == Reservation(State.OPEN, False, ARGUMENTS)
        assert not store.reservations.begin(branch, PAY, {})
        assert store.reservations.held(PAY, branch.store) == []

    def test_what_is_held_is_confirmed(self, store: Store) -> None:
        branch = new_branch()
        store.reservations.begin(branch, PAY, ARGUMENTS)
        assert store.reservations.hold(branch)
        assert store.reservations.hold(branch)
        assert store.reservations.held(PAY, branch.store) == [branch]
        for _ in range(2):
            store.reservations.settle(branch, Decision.COMMIT)
        assert known(store, branch) == Reservation(State.CONFIRMED, True, ARGUMENTS)
        assert store.reservations.shut(branch, PAY).state is State.CONFIRMED
        assert store.reservations.held(PAY, branch.store) == []

    @pytest.mark.parametrize("tried", [True, False])
    def test_what_is_shut_is_cancelled_and_no_late_yes_counts(self, store: Store, tried: bool) -> None:
        branch = new_branch()
        store.reservations.begin(branch, PAY, ARGUMENTS)
        assert not tried or store.reservations.hold(branch)
        for _ in range(2):
            assert store.reservations.shut(branch, PAY) == Reservation(State.CANCELLING, tried, ARGUMENTS)
        assert not store.reservations.hold(branch)
        store.reservations.settle(branch, Decision.COMMIT)
        assert store.reservations.held(PAY, branch.store) == [branch]
        store.reservations.settle(branch, Decision.ROLLBACK)
        assert known(store, branch) == Reservation(State.CANCELLED, tried, ARGUMENTS)
        assert store.reservations.held(PAY, branch.store) == []
        assert not store.reservations.hold(branch)

    def test_a_try_that_comes_behind_its_cancel_is_refused(self, store: Store) -> None:
        branch = new_branch()
        assert store.reservations.shut(branch, PAY) == Reservation(State.CANCELLED, False, {})
        assert not store.reservations.begin(branch, PAY, ARGUMENTS)
        assert not store.reservations.hold(branch)

    def test_what_is_held_is_listed_by_resource_and_store(self, store: Store) -> None:
        branches = [new_branch(), new_branch()]
        branches.append(new_branch(2, beside=branches[0]))
        branches.append(new_branch(attempt=2, beside=branches[0]))
        for branch, resource in zip(branches, (PAY, PAY, "stock", PAY), strict=True):
            store.reservations.begin(branch, resource, {})
            store.reservations.hold(branch)
        assert store.reservations.held(PAY, branches[0].store) == [branches[0], branches[3]]
        assert store.reservations.held(PAY, branches[1].store) == [branches[1]]
        assert store.reservations.held("stock", branches[0].store) == [branches[2]]

    def test_what_is_dropped_is_gone(self, store: Store) -> None:
        branch, other = new_branch(), new_branch()
        for each in (branch, other):
            store.reservations.begin(each, PAY, {})
        for _ in range(2):
            store.reservations.drop(branch)
        assert store.reservations.find(branch) is None
        assert store.reservations.find(other) is not None
