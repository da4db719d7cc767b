"""What every store promises of leases: one holder at a time, by the store's clock, and epochs only rise."""

# The name of a test is a sentence.

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.contracts.samples import LONG
from tests.contracts.timing import IN_TIME, OVER, Later
from txsaga.store.store import Store

SOON, LATE = timedelta(seconds=IN_TIME), OVER
ROUND = ("round", "check-back")


class LeaseContract:
    """Leases, as the port `Leases` promises them."""

    @pytest.mark.req("RMQ-30")
    def test_one_leads_and_the_others_stand_by(self, store: Store) -> None:
        lead = store.leases.acquire(*ROUND, "anna", LONG)
        assert lead is not None
        assert store.leases.acquire(*ROUND, "otto", LONG) is None
        assert store.leases.acquire("round", "another", "otto", LONG) is not None

    def test_who_leads_goes_on_in_the_same_epoch(self, store: Store) -> None:
        first = store.leases.acquire(*ROUND, "anna", LONG)
        assert store.leases.acquire(*ROUND, "anna", LONG) == first

    def test_a_lease_that_ran_out_goes_to_the_next_in_a_new_epoch(self, store: Store, later: Later) -> None:
        first = store.leases.acquire(*ROUND, "anna", SOON)
        later(LATE)
        second = store.leases.acquire(*ROUND, "otto", LONG)
        assert first is not None and second is not None
        assert second.epoch > first.epoch
        assert store.leases.acquire(*ROUND, "anna", LONG) is None

    def test_who_slept_past_its_lease_comes_back_in_a_new_epoch(self, store: Store, later: Later) -> None:
        first = store.leases.acquire(*ROUND, "anna", SOON)
        later(LATE)
        again = store.leases.acquire(*ROUND, "anna", LONG)
        assert first is not None and again is not None
        assert again.epoch > first.epoch

    def test_what_is_given_back_is_free(self, store: Store) -> None:
        lead = store.leases.acquire(*ROUND, "anna", LONG)
        assert lead is not None
        store.leases.release(lead)
        second = store.leases.acquire(*ROUND, "otto", LONG)
        assert second is not None and second.epoch > lead.epoch
        store.leases.release(lead)  # it is another's now
        assert store.leases.acquire(*ROUND, "anna", LONG) is None

    def test_members_are_alive_for_their_time(self, store: Store, later: Later) -> None:
        store.leases.keep(["checker:1", "checker:2"], "anna", SOON)
        store.leases.keep(["checker:1"], "otto", LONG)
        assert store.leases.alive(["checker:1"]).get("checker:1") == ["anna", "otto"]
        later(LATE)
        assert store.leases.alive(["checker:1"]).get("checker:1") == ["otto"]
        assert not store.leases.alive(["checker:2"]).get("checker:2")

    def test_who_leaves_is_gone_at_once(self, store: Store) -> None:
        store.leases.keep(["checker:1"], "anna", LONG)
        store.leases.drop(["checker:1"], "anna")
        assert not store.leases.alive(["checker:1"]).get("checker:1")
