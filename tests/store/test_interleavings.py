"""The same interleavings over PostgreSQL, as many as fit into some five seconds."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store.interleavings import Interleavings
from txsaga.wiring.connecting import open_store

pytestmark = pytest.mark.postgres

SOME = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # making a failing example smaller would take minutes here
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.req("RMQ-03", "RMQ-21", "RMQ-92")
@pytest.mark.rule("R4", "R11")
def test_nothing_is_lost_doubled_shown_early_or_out_of_order(home_url: str) -> None:
    stores = [open_store(home_url), open_store(home_url)]

    class OnPostgres(Interleavings):
        """All examples share one home, each with topics of its own; two stores on it are as good as two processes."""

    OnPostgres.stores = stores
    try:
        run_state_machine_as_test(OnPostgres, settings=SOME)
    finally:
        for store in stores:
            store.close()
