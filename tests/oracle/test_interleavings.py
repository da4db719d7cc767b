"""Whatever the order in which producers, owners, dispatchers and consumers come, all is read that was decided."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.oracle import MemoryStore
from tests.store.interleavings import Interleavings
from txsaga.testing import FakeClock

MANY = settings(max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


class InMemory(Interleavings):
    """Each example has a store of its own."""

    def __init__(self) -> None:
        type(self).stores = (MemoryStore(FakeClock()),)
        super().__init__()


@pytest.mark.req("RMQ-03", "RMQ-21", "RMQ-92")
@pytest.mark.rule("R4", "R11")
def test_nothing_is_lost_doubled_shown_early_or_out_of_order() -> None:
    run_state_machine_as_test(InMemory, settings=MANY)
