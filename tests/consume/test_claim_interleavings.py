"""The same interleavings of members over PostgreSQL, as many as fit into some ten seconds."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.consume.claim_interleavings import ClaimInterleavings
from tests.scene.stored import Stored
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

SOME = settings(
    max_examples=10,
    stateful_step_count=30,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # making a failing example smaller would take minutes here
    suppress_health_check=list(HealthCheck),
)
EARLIER = "UPDATE claim SET until = until - :seconds * interval '1 second' WHERE grp = :group"


@pytest.mark.req("IBM-61", "RMQ-63")
@pytest.mark.rule("R11")
def test_nothing_is_lost_held_twice_handed_out_too_often_or_out_of_order(home_url: str) -> None:
    stores, stored = [open_store(home_url), open_store(home_url)], Stored(home_url)

    class OnPostgres(ClaimInterleavings):
        """All examples share one home, each with a group of its own; two stores on it are as good as two processes."""

    def let_pass(group: str, seconds: float) -> None:
        stored.rows(EARLIER, group=group, seconds=seconds)

    OnPostgres.stores, OnPostgres.let_pass = stores, staticmethod(let_pass)
    try:
        run_state_machine_as_test(OnPostgres, settings=SOME)
    finally:
        for store in stores:
            store.close()
